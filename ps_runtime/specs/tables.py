"""Sparse tables: large arrays of rows of which a step touches few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["TableSpec"]

ASKED = ("num_rows", "dim", "dtype", "initializer", "admit_after", "expire_after_steps")
"""What a model_fn asks of a table by its name; seed and optimizer come from elsewhere."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One sparse table. Row `id` lies on shard ``id % num_ps``, there at place ``id // num_ps``."""

    name: str
    num_rows: int
    dim: int
    dtype: str
    optimizer: int | None
    initializer: Mapping[str, Any]
    seed: int
    admit_after: int = 1
    expire_after_steps: int | None = None

    @property
    def row_nbytes(self) -> int:
        """Size of a row's weights in bytes."""
        return self.dim * np.dtype(self.dtype).itemsize

    def num_rows_on(self, shard: int, num_shards: int) -> int:
        """Return how many rows lie on one of the shards.

        Examples
        --------
        >>> spec = TableSpec("items", 7, 4, "float32", 0, {"name": "zeros"}, seed=1)
        >>> [spec.num_rows_on(shard, 3) for shard in range(3)]
        [3, 2, 2]
        """
        return max(0, -(-(self.num_rows - shard) // num_shards))

    def differences(self, other: TableSpec) -> list[str]:
        """Say in which of the things that a model_fn asks for `other` differs, such as ``dim 8, expected 16``."""
        pairs = [(name, getattr(other, name), getattr(self, name)) for name in ASKED]
        return [f"{name} {got!r}, expected {expected!r}" for name, got, expected in pairs if got != expected]
