"""The values of a model as evaluation, prediction and export hold them: all of its variables, all of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.specs.tables import TableSpec
from psflow.ps_runtime.specs.variables import ModelSpec

if TYPE_CHECKING:
    from psflow.ps_runtime.tables.table import Table

__all__ = ["ModelValues", "read_only"]


@dataclass(frozen=True, slots=True)
class ModelValues:
    """A model at one global_step, a `RowSource` for its tables."""

    variables: Mapping[str, NDArray[Any]]
    tables: Mapping[str, Table] = field(default_factory=dict)

    @classmethod
    def initial(cls, model: ModelSpec, variables: Mapping[str, NDArray[Any]]) -> ModelValues:
        """Return the values that a model has before the first push."""
        from psflow.ps_runtime.tables.table import Table  # only models with tables need what it needs

        return cls(variables, {table.name: Table(table, None) for table in model.tables})

    def rows(self, spec: TableSpec, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Return the rows of ``(num_ids,)`` unique `ids`, of shape ``(num_ids, dim)``."""
        out = np.empty((len(ids), spec.dim), spec.dtype)
        self.tables[spec.name].pull(ids, out)
        return out


def read_only(value: NDArray[Any]) -> NDArray[Any]:
    """Return a view that a model_fn cannot write to by mistake, as with ``w += 1``."""
    view = np.asarray(value).view()
    view.flags.writeable = False
    return view
