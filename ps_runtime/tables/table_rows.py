"""Rows in memory: the weights and slots of a row are adjacent, so that they share a page."""

from __future__ import annotations

import mmap
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.optimizers.base import FloatArray, Optimizer, UpdateOperands

_HUGE_NBYTES, _HUGE_ROWS = 2 << 30, 2 << 20
"""Tables of at most this many rows and bytes are backed by huge pages."""

_NO_RESERVE = 0x4000 if (platform.system(), platform.machine()) in {("Linux", "x86_64"), ("Linux", "aarch64")} else 0
"""MAP_NORESERVE, which Python does not define: a mapping may exceed the available memory."""


def lazy_zeros(nbytes: int, *, huge_pages: bool = False) -> NDArray[np.uint8]:
    """Return zeros whose pages the system backs at their first write.

    They begin at a page, so that a row of 64 bytes lies in one cache line; those of `numpy.zeros` begin 16 bytes after
    one.

    Examples
    --------
    >>> zeros = lazy_zeros(100)
    >>> zeros.shape, zeros.ctypes.data % 4096, int(zeros.max())
    ((100,), 0, 0)
    """
    if nbytes == 0:
        return np.zeros(0, np.uint8)
    mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    if huge_pages and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel does not support huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapping, np.uint8)


def row_memory(num_rows: int, row_nbytes: int) -> NDArray[np.uint8]:
    """Return zeros for the rows of a table: in huge pages if the table is small enough to be backed whole.

    Huge pages make random access faster. But a single row backs its whole huge page, so large tables, and those of many
    rows, most of which may never be touched, use small pages.
    """
    nbytes = num_rows * row_nbytes
    return lazy_zeros(nbytes, huge_pages=num_rows <= _HUGE_ROWS and nbytes <= _HUGE_NBYTES)


TAKEN_ROWS = 4096
"""Rows per block: their positions stay in the cache for a second pass."""

_CACHED_BYTES = 3 << 17
"""Bytes of an update in the cache: all parts of some rows, their gradients and scratch."""

_PAGE_BYTES = 4096


class _Block(NamedTuple):
    """Some rows in the cache: the views that an update needs."""

    rows: Sequence[FloatArray]
    """Each part, (n, dim)."""
    records: Sequence[NDArray[Any]]
    """Each part as (n,) records."""
    weights: FloatArray
    """The weights, (n * dim,)."""
    slots: Mapping[str, FloatArray]
    """Each slot in the same form."""
    scratch: FloatArray
    """Scratch of the same size."""

    def first(self, num_rows: int, dim: int) -> _Block:
        """Return the views of the first rows."""
        size = num_rows * dim
        return _Block(
            [values[:num_rows] for values in self.rows],
            [values[:num_rows] for values in self.records],
            self.weights[:size],
            {name: values[:size] for name, values in self.slots.items()},
            self.scratch[:size],
        )


class TableRows:
    """Memory of `num_rows` rows in several *parts*: weights, then each slot of the optimizer.

    Notes
    -----
    A *place* is the index of a row here, in ``[0, num_rows)``.
    """

    def __init__(
        self,
        num_rows: int,
        dim: int,
        dtype: str,
        optimizer: Optimizer | None,
        allocate: Callable[[int, int], NDArray[np.uint8]],
    ) -> None:
        self.part_names = ("weights", *(optimizer.slot_names if optimizer else ()))
        self._optimizer = optimizer
        self._dim = dim
        item = np.dtype(dtype)
        num_parts, part_nbytes = len(self.part_names), dim * item.itemsize
        self._num_parts = num_parts
        memory = allocate(num_rows, num_parts * part_nbytes)
        # a view for each part, starting at the part, so that a row has the same position in all of them
        starts = [part * part_nbytes if num_rows else 0 for part in range(num_parts)]
        self._parts: list[FloatArray] = [memory[start:].view(item).reshape(-1, dim) for start in starts]
        # numpy scatters items of a plain record type faster than rows of a 2-d array
        self._record = np.dtype((np.void, part_nbytes))
        self._records = [memory[start:].view(self._record) for start in starts]
        self._whole = memory.view(np.dtype((np.void, num_parts * part_nbytes)))
        slots = [optimizer.initial_slot(name) for name in optimizer.slot_names] if optimizer else []
        self._first_values = np.repeat(np.array([0.0, *slots], item), dim)
        self.num_pages = -(-memory.nbytes // _PAGE_BYTES)
        self.num_rows_of_page = max(1, _PAGE_BYTES // (num_parts * part_nbytes))
        self._num_cached = max(1, _CACHED_BYTES // ((num_parts + 2) * part_nbytes))
        self._taken = np.empty(TAKEN_ROWS, np.int64)
        *parts, scratch = np.empty((num_parts + 1, self._num_cached * dim), item)
        self._full_block = _Block(
            [part.reshape(-1, dim) for part in parts],
            [part.view(self._record) for part in parts],
            parts[0],
            dict(zip(self.part_names[1:], parts[1:], strict=True)),
            scratch,
        )

    def take(self, part: int, places: NDArray[np.int64], out: FloatArray) -> None:
        """Copy a part of some rows into `out` (n, dim), contiguous and of the table's dtype."""
        for _ in self.take_blocks(part, places, out):
            pass

    def take_blocks(self, part: int, places: NDArray[np.int64], out: FloatArray) -> Iterator[slice]:
        """Take rows in blocks; yield the slice of `out` that was copied last, while it is in the cache."""
        source = self._parts[part]
        for start in range(0, len(places), TAKEN_ROWS):
            some = slice(start, start + TAKEN_ROWS)
            positions = places[some]
            if self._num_parts > 1:
                positions = np.multiply(positions, self._num_parts, out=self._taken[: len(positions)])
            # the other modes copy `out`
            source.take(positions, axis=0, out=out[some], mode="clip")
            yield some

    def put(self, part: int, places: NDArray[np.int64], values: FloatArray) -> None:
        """Copy `values` (n, dim), contiguous and of the table's dtype, into a part of some rows."""
        self._records[part].put(self._positions(places), values.reshape(-1).view(self._record), mode="clip")

    def begin(self, places: NDArray[np.int64], weights: FloatArray) -> None:
        """Set the `weights` (n, dim) of new rows, and their slots to the initial values."""
        rows = np.empty((len(places), len(self._first_values)), weights.dtype)
        rows[:] = self._first_values
        rows[:, : self._dim] = weights
        self._whole.put(places, rows.reshape(-1).view(self._whole.dtype), mode="clip")

    def clear(self, places: NDArray[np.int64]) -> None:
        """Set all parts of some rows to 0."""
        self._whole.put(places, np.zeros(1, self._whole.dtype), mode="clip")

    def update(
        self, places: NDArray[np.int64], gradients: FloatArray, *, learning_rate: float, num_updates: int
    ) -> None:
        """Apply the optimizer to some rows: gather as many as fit the cache, update them, scatter them."""
        assert self._optimizer is not None, "rows without an optimizer cannot be updated"
        positions = self._positions(places)
        for start in range(0, len(places), self._num_cached):
            some = positions[start : start + self._num_cached]
            block = self._full_block if len(some) == self._num_cached else self._full_block.first(len(some), self._dim)
            for part, values in zip(self._parts, block.rows, strict=True):
                part.take(some, axis=0, out=values, mode="clip")
            self._optimizer.update(
                UpdateOperands(
                    block.weights,
                    gradients[start : start + self._num_cached].reshape(-1),
                    block.slots,
                    block.scratch,
                    learning_rate=learning_rate,
                    num_updates=num_updates,
                )
            )
            for records, values in zip(self._records, block.records, strict=True):
                records.put(some, values, mode="clip")

    def copy_into(self, other: TableRows, some: slice | NDArray[np.int64]) -> None:
        """Copy some rows, with all parts, to the same positions of `other`."""
        other._whole[some] = self._whole[some]

    def pages(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the pages on which some rows begin, each in ``[0, num_pages)``."""
        return places * self._whole.itemsize // _PAGE_BYTES

    def _positions(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places if self._num_parts == 1 else places * self._num_parts
