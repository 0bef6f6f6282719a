"""Where the rows of a lookup come from."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.specs.tables import TableSpec

__all__ = ["RowSource"]


class RowSource(Protocol):
    """Gives rows of tables during a call of model_fn."""

    def rows(self, spec: TableSpec, ids: NDArray[np.int64]) -> Any:
        """Return the rows of ``(num_ids,)`` unique `ids`, maybe none, as ``(num_ids, dim)``; they are only read."""
