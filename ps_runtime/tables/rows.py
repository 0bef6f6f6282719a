"""Rows in memory: weights and slots of a row side by side, so that an update touches one place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ps_runtime.optimizers.base import FloatArray, Optimizer

__all__ = ["Rows"]

_BLOCK_BYTES = 1 << 18
"""What an update holds in the cache at a time: all parts of some rows, their gradients and scratch."""


class Rows:
    """`num_rows` rows of several parts: weights first, then each slot of the optimizer.

    Parameters
    ----------
    num_rows, dim : int
    dtype : str
    optimizer : Optimizer or None
        Its slots are the further parts.
    allocate : callable
        Gives that many bytes, all zero.

    Notes
    -----
    A *place* is the number of a row, in ``[0, num_rows)``; places are clipped to it, never out of bounds.
    """

    def __init__(
        self,
        num_rows: int,
        dim: int,
        dtype: str,
        optimizer: Optimizer | None,
        allocate: Callable[[int], NDArray[np.uint8]],
    ) -> None:
        self.dim = dim
        self.optimizer = optimizer
        self.slot_names = optimizer.slot_names if optimizer else ()
        self._num_parts = 1 + len(self.slot_names)
        item = np.dtype(dtype)
        memory = allocate(num_rows * self._num_parts * dim * item.itemsize)
        self.whole = memory.view(item).reshape(num_rows, self._num_parts, dim)
        # numpy puts items of a plain record type at once, where it would walk through rows of a 2-d array
        self._record = np.dtype((np.void, dim * item.itemsize))
        self._parts = self.whole.reshape(num_rows * self._num_parts, dim)
        self._records = memory.view(self._record)
        self._block = max(1, _BLOCK_BYTES // ((self._num_parts + 2) * dim * item.itemsize))
        self._cached = np.empty((self._num_parts + 1, self._block * dim), item)

    def take(self, part: int, places: NDArray[np.int64], out: FloatArray) -> None:
        """Copy a part of some rows into `out` (n, dim), which is contiguous."""
        np.take(self._parts, self._positions(part, places), axis=0, out=out, mode="clip")

    def put(self, part: int, places: NDArray[np.int64], values: FloatArray) -> None:
        """Copy `values` (n, dim), contiguous and of the table's dtype, into a part of some rows."""
        self._records[self._positions(part, places)] = values.reshape(-1).view(self._record)

    def fill(self, part: int, places: NDArray[np.int64], value: float) -> None:
        """Set a part of some rows to one number."""
        self._records[self._positions(part, places)] = np.full(self.dim, value, self._parts.dtype).view(self._record)

    def update(
        self, places: NDArray[np.int64], gradients: FloatArray, *, learning_rate: float, num_updates: int
    ) -> None:
        """Apply the optimizer to some rows: gather a block of them, update it while it is cached, scatter it.

        Parameters
        ----------
        places : (n,) array of int64
            No two alike.
        gradients : (n, dim) array of the table's dtype, contiguous
            Used up.
        learning_rate : float
        num_updates : int
            As `Optimizer.update` takes them.
        """
        assert self.optimizer is not None, "rows without an optimizer are not updated"
        for start in range(0, len(places), self._block):
            some = places[start : start + self._block]
            weights, *slots, scratch = self._cached[:, : len(some) * self.dim]
            parts = [weights, *slots]
            for part, values in enumerate(parts):
                self.take(part, some, values.reshape(-1, self.dim))
            self.optimizer.update(
                weights,
                gradients[start : start + self._block].reshape(-1),
                dict(zip(self.slot_names, slots, strict=True)),
                scratch,
                learning_rate=learning_rate,
                num_updates=num_updates,
            )
            for part, values in enumerate(parts):
                self.put(part, some, values)

    def _positions(self, part: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places if self._num_parts == 1 else places * self._num_parts + part
