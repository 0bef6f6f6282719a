"""The shard of a sparse table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.optimizers.base import FloatArray, Optimizer
from psflow.ps_runtime.specs.variables import TableSpec
from psflow.ps_runtime.tables.bounds import check_ids, places_of, push_count_dtype
from psflow.ps_runtime.tables.initial_rows import initial_rows
from psflow.ps_runtime.tables.table_rows import TableRows, lazy_zeros, row_memory

_BLOCK_ROWS = 1 << 16
"""Number of rows per block in operations on all rows."""


class Table:
    """The rows with ``id % num_shards == shard``, their slots, and which of them exist.

    A row is *created* by its `admit_after`-th push. Until then it has its initial values and takes no memory. A row
    that expires has its initial values again. All ids are those of the whole table.

    Notes
    -----
    The rule sees only the rows of a push. So rules that change a parameter whose gradient is zero (Momentum, Adam,
    RMSProp) are *lazy* here: means and velocities of a row decay with its own pushes, not with each update of the
    model. `num_updates` is still that of the model.

    Not thread-safe. No method keeps its arguments.
    """

    def __init__(
        self,
        spec: TableSpec,
        optimizer: Optimizer | None,
        shard: int = 0,
        num_shards: int = 1,
        *,
        allocate: Callable[[int, int], NDArray[np.uint8]] = row_memory,
    ) -> None:
        self.spec = spec
        self.optimizer = optimizer
        self.shard = shard
        self.num_shards = num_shards
        self.num_created = 0
        """Number of rows that exist."""
        num_rows = spec.num_rows_on(shard, num_shards)
        self._rows = TableRows(num_rows, spec.dim, spec.dtype, optimizer, allocate)
        # number of pushes of each row, counted up to admit_after: at that number it is created
        count = push_count_dtype(spec)
        self._pushes = lazy_zeros(num_rows * count.itemsize).view(count)
        self._bits = np.dtype(f"i{np.dtype(spec.dtype).itemsize}")  # faster to count than floats
        self._copy: Table | None = None
        self._is_backed = lazy_zeros(self._rows.num_pages).view(np.bool)
        """Pages of rows that `_back` has written."""
        self._last_push = None if spec.expire_after_steps is None else lazy_zeros(num_rows * 8).view(np.int64)

    def pull(self, ids: NDArray[np.int64], out: FloatArray) -> None:
        """Copy weights into `out`. A row that does not exist yields its initial values, and stays uncreated.

        Raises InputError if an id is outside the table, or lies on another shard; `out` is unchanged.
        """
        places = self._places(ids)
        if self.spec.initializer["name"] == "zeros":  # the memory of uncreated rows is zero
            self._rows.take(0, places, out)
            return
        # few weights are zero, so most rows need no lookup
        first = out.view(self._bits)[:, 0]
        num_filled = 0
        for some in self._rows.take_blocks(0, places, out):
            num_filled += int(np.count_nonzero(first[some]))
        if num_filled < len(ids):
            zeros = np.flatnonzero(first == 0)
            missing = zeros[self._pushes[places[zeros]] < self.spec.admit_after]
            out[missing] = initial_rows(self.spec, ids[missing])

    def push(self, ids: NDArray[np.int64], gradients: FloatArray, *, learning_rate: float, num_updates: int) -> None:
        """Apply one gradient to its rows, creating those that reach `admit_after`.

        Raises InputError if an id is outside the table, or lies on another shard; nothing is changed then.
        """
        places = self._places(ids)
        is_admitted = self._admit(ids, places, num_updates)
        if not is_admitted.all():
            places, gradients = places[is_admitted], gradients[is_admitted]
        self._rows.update(places, gradients, learning_rate=learning_rate, num_updates=num_updates)

    def expire(self, num_updates: int) -> int:
        """Remove the rows without a push for `expire_after_steps` updates; return how many created ones are removed.

        An uncreated row loses the pushes counted for its admission.
        """
        if self._last_push is None or self.spec.expire_after_steps is None:
            return 0
        before = self.num_created
        for places in self._touched():
            self._forget(places[num_updates - self._last_push[places] >= self.spec.expire_after_steps])
        return before - self.num_created

    def clear(self) -> None:
        """Remove all rows."""
        for places in self._touched():
            self._forget(places)

    def prepare_copies(self, other: Table) -> None:
        """From now on back the memory of `other` when rows are created here, so that `copy_into` need not wait for it.

        Backing a page takes the system ten times as long as the copy. Existing rows of `other` are left alone, so it
        may be read concurrently.
        """
        self._copy = other

    def copy_into(self, other: Table) -> None:
        """Make `other`, of the same spec, optimizer and shard, equal to this table; untouched rows cost nothing."""
        for start in range(0, len(self._pushes), _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, len(self._pushes))
            is_mine, is_theirs = self._pushes[start:stop] != 0, other._pushes[start:stop] != 0
            other._forget(start + np.flatnonzero(is_theirs & ~is_mine))
            num_mine = int(np.count_nonzero(is_mine))
            if num_mine == 0:
                continue
            # if every page has its row, all are copied at once; otherwise no page without a row is backed
            is_dense = num_mine * self._rows.num_rows_of_page >= stop - start
            some = slice(start, stop) if is_dense else start + np.flatnonzero(is_mine)
            self._rows.copy_into(other._rows, some)
            other._pushes[some] = self._pushes[some]
            if self._last_push is not None and other._last_push is not None:
                other._last_push[some] = self._last_push[some]
        other.num_created = self.num_created

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return copies of the whole state, for `load` on any number of shards."""
        touched = np.concatenate([np.empty(0, np.int64), *self._touched()])
        is_created = self._pushes[touched] == self.spec.admit_after
        created, candidates = touched[is_created], touched[~is_created]
        found: dict[str, NDArray[Any]] = {"ids": self._ids(created)}
        for part, name in enumerate(self._rows.part_names):
            found[name] = np.empty((len(created), self.spec.dim), self.spec.dtype)
            self._rows.take(part, created, found[name])
        if self._last_push is not None:
            found["last_push"] = self._last_push[created]
        if self.spec.admit_after > 1:
            found["candidate_ids"] = self._ids(candidates)
            found["candidate_pushes"] = self._pushes[candidates].astype(np.int64)
            if self._last_push is not None:
                found["candidate_last_push"] = self._last_push[candidates]
        return found

    def load(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Add the rows of `tensors`, from a table of the same spec; those of other shards are ignored.

        Call `clear` first if the table may have rows; call this once for each saved shard.

        Raises InputError if an id is outside the table.
        """
        places, mine = self._own(tensors["ids"])
        for part, name in enumerate(self._rows.part_names):
            self._rows.put(part, places, np.ascontiguousarray(tensors[name][mine], self.spec.dtype))
        self.num_created += len(places)
        self._pushes[places] = self.spec.admit_after
        if self._last_push is not None:
            self._last_push[places] = tensors["last_push"][mine]
        if self.spec.admit_after > 1:
            places, mine = self._own(tensors["candidate_ids"])
            self._pushes[places] = tensors["candidate_pushes"][mine]
            if self._last_push is not None:
                self._last_push[places] = tensors["candidate_last_push"][mine]

    def _places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return places_of(self.spec.name, ids, self.spec.num_rows, self.shard, self.num_shards)

    def _ids(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places * self.num_shards + self.shard

    def _own(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool]]:
        """Return the positions of the ids that lie here, and which ids those are."""
        check_ids(self.spec.name, ids, self.spec.num_rows)
        mine = ids % self.num_shards == self.shard
        return ids[mine] // self.num_shards, mine

    def _admit(self, ids: NDArray[np.int64], places: NDArray[np.int64], num_updates: int) -> NDArray[np.bool]:
        """Count a push for each row, create those that reach `admit_after`; return which are created."""
        enough = self.spec.admit_after
        counts = self._pushes.take(places, mode="clip")
        if self._last_push is not None:
            self._last_push[places] = num_updates
        young = np.flatnonzero(counts < enough)
        if young.size:
            counts[young] += 1
            self._pushes[places[young]] = counts[young]
            new = young[counts[young] == enough]
            self._rows.begin(places[new], initial_rows(self.spec, ids[new]))
            self.num_created += len(new)
            if self._copy is not None:
                self._copy._back(places[new])
        is_created: NDArray[np.bool] = counts == enough
        return is_created

    def _back(self, places: NDArray[np.int64]) -> None:
        """Write the current content to rows without a push, on pages that are not backed yet."""
        pages = self._rows.pages(places)
        is_new = ~self._is_backed[pages]
        if not is_new.any():
            return
        self._is_backed[pages[is_new]] = True
        places = places[is_new]
        untouched = places[self._pushes[places] == 0]
        self._rows.clear(untouched)
        self._pushes[untouched] = 0
        if self._last_push is not None:
            self._last_push[untouched] = 0

    def _touched(self) -> Iterator[NDArray[np.int64]]:
        """Yield the positions of the rows with a push, ascending, in blocks."""
        for start in range(0, len(self._pushes), _BLOCK_ROWS):
            yield start + np.flatnonzero(self._pushes[start : start + _BLOCK_ROWS] != 0)

    def _forget(self, places: NDArray[np.int64]) -> None:
        self.num_created -= int(np.count_nonzero(self._pushes[places] == self.spec.admit_after))
        self._pushes[places] = 0
        self._rows.clear(places)
