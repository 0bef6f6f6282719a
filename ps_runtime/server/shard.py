"""Holds a shard: one flat arena of parameters, the slots of its optimizers, and the pushes that wait for a decision.

ps-0 decides on each push (see `job_state`), so any other shard learns of it only afterwards. A shard therefore *holds*
a push when it arrives, and applies it as the next entries say. A push that is held in a snapshot and in no entry was
torn: its replica was lost between two shards. So a snapshot of all shards holds exactly the decided pushes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.optimizers.base import FloatArray, Optimizer, UpdateOperands
from psflow.ps_runtime.protocol.job_state import Decision, Entry
from psflow.ps_runtime.protocol.message import Incarnation, Room
from psflow.ps_runtime.protocol.payloads import PushBuffer, PushLayout
from psflow.ps_runtime.server.instructions import Refusal, replica_name
from psflow.ps_runtime.server.push_sum import PushSum, RowGradients
from psflow.ps_runtime.specs.layout import ArenaGroup, ShardLayout
from psflow.ps_runtime.specs.variables import TableSpec
from psflow.ps_runtime.tables.bounds import places_of
from psflow.ps_runtime.tables.table import Table
from psflow.ps_runtime.transport.arena import Arena

BLOCK_SIZE = 1 << 17
"""How many parameters are updated at a time: they, their slots and gradients fit the cache of a core."""

CopyArrays = Callable[[Sequence[tuple[NDArray[Any], NDArray[Any]]]], None]
"""Copies the second array of each pair into the first; both have one dimension and the same size."""


def _copy_in_turn(pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> None:
    for target, source in pairs:
        np.copyto(target, source)


@dataclass(frozen=True)
class ShardArrays:
    """The parameters of a shard and the slots of each of its groups; `slots[g]` belongs to ``layout.groups[g]``."""

    arena: NDArray[np.uint8]
    slots: tuple[Mapping[str, FloatArray], ...]

    @classmethod
    def over(cls, arena: NDArray[np.uint8], layout: ShardLayout, optimizers: Sequence[Optimizer]) -> ShardArrays:
        """Return arrays for `layout` on the bytes of its arena, all touched, the slots at their initial values."""
        arena.fill(0)  # touches the pages, so that the first copy into them is as fast as the later ones
        slots = []
        for group in layout.groups:
            optimizer = None if group.optimizer is None else optimizers[group.optimizer]
            size = (group.stop - group.start) // np.dtype(group.dtype).itemsize
            names = optimizer.slot_names if optimizer else ()
            slots.append({n: np.full(size, optimizer.initial_slot(n), group.dtype) for n in names if optimizer})
        return cls(arena, tuple(slots))

    def copy_into(self, other: ShardArrays, copy_arrays: CopyArrays) -> None:
        """Copy all arrays into those of `other`, which has the same layout."""
        slots = [
            (theirs[name], slot)
            for mine, theirs in zip(self.slots, other.slots, strict=True)
            for name, slot in mine.items()
        ]
        copy_arrays([(other.arena, self.arena), *slots])


@dataclass(slots=True)
class _Held:
    """A push that waits for a decision. A borrowed one is valid only during the present event."""

    sequence: int
    version: int
    push: PushBuffer
    is_borrowed: bool


class _Block(NamedTuple):
    """A part of a group to be updated at a time: its bytes, its values in the group, and their arrays."""

    start: int
    stop: int
    values: slice
    parameters: FloatArray
    slots: Mapping[str, FloatArray]
    scratch: FloatArray


class Shard:
    """The shard machine: pushes, decisions, snapshots. No sockets, no clock; one caller at a time."""

    def __init__(
        self,
        layout: ShardLayout,
        optimizers: Sequence[Optimizer],
        tables: Sequence[TableSpec] = (),
        num_shards: int = 1,
        *,
        arena: Arena | None = None,
        staleness_aware: bool = False,
        copy_arrays: CopyArrays = _copy_in_turn,
    ) -> None:
        self.layout = layout
        self.optimizers = tuple(optimizers)
        self.push_layout = PushLayout.of(layout, len(self.optimizers), tables)
        self.num_shards = num_shards
        self.max_rows_nbytes = self.push_layout.rows.max_nbytes(num_shards)
        """Size of the most ids and rows that a message may have."""
        self.max_push_nbytes = self.push_layout.rows_start + self.max_rows_nbytes
        """Size of the largest push."""
        self.arena = arena or Arena.private(layout.nbytes)
        self.arrays = ShardArrays.over(self.arena.bytes, layout, self.optimizers)
        self.snapshot_arrays = ShardArrays.over(np.empty(layout.nbytes, np.uint8), layout, self.optimizers)
        self.tables, self.snapshot_tables = self._make_tables(tables), self._make_tables(tables)
        for table, copy in zip(self.tables, self.snapshot_tables, strict=True):
            table.prepare_copies(copy)
        self.snapshot_step: int | None = None
        """The global_step of `snapshot_arrays`."""
        self.version = 0
        self.is_ready = False
        self.torn_pushes = 0
        self._staleness_aware = staleness_aware
        self._copy_arrays = copy_arrays
        self.num_settled = 0
        """Applied entries of the log."""
        self._held: dict[Incarnation, _Held] = {}
        self._settled: dict[Incarnation, int] = {}
        self._spare: list[PushBuffer] = []
        self._round = PushSum(layout, len(self.optimizers))
        self._parameters = [self._view(group, self.arrays.arena) for group in layout.groups]
        self._scratch = [np.empty(min(view.size, BLOCK_SIZE), view.dtype) for view in self._parameters]
        self._blocks = [list(self._cut(i, group.start, group.stop)) for i, group in enumerate(layout.groups)]
        """Of the whole of each group."""
        self._whole_mask = b"\1" * self.push_layout.num_pieces
        self._pulled = np.empty(0, np.uint8)
        self._pieces = [p for p in layout.pieces if p.offset + p.nbytes <= layout.gradient_nbytes]

    def initialize(self, parameters: bytes | bytearray | memoryview) -> None:
        """Set the first values of all parameters, as the bytes of the arena."""
        self.arena.begin(self.version)
        self.arena.advance(0, self.layout.nbytes)
        self.arrays.arena[:] = np.frombuffer(parameters, np.uint8)
        self.arena.end()
        self.is_ready = True

    def restore(self, step: int) -> None:
        """Adopt `snapshot_arrays`, which were filled from the checkpoint of `step`; the version is that step."""
        self.version = step
        self.arena.begin(step)
        self.arena.advance(0, self.layout.nbytes)
        self.snapshot_arrays.copy_into(self.arrays, self._copy_arrays)
        self.arena.end()
        for table, copy in zip(self.tables, self.snapshot_tables, strict=True):
            copy.copy_into(table)
        self.snapshot_step = step
        self.is_ready = True

    def hold(self, key: Incarnation, sequence: int, version: int, push: PushBuffer) -> bool:
        """Hold a push, computed on `version`; return False for a repeat.

        The push is only borrowed: `keep` copies what is still held after the event.
        """
        held = self._held.get(key)
        if sequence <= self._settled.get(key, 0) or (held is not None and held.sequence == sequence):
            return False
        if held is not None:
            self._tear(key)
        self._held[key] = _Held(sequence, version, push, is_borrowed=True)
        return True

    def keep(self, key: Incarnation) -> None:
        """Copy the push of `incarnation`, if it is still held and only borrowed."""
        held = self._held.get(key)
        if held is not None and held.is_borrowed:
            if self._spare:
                kept = self._spare.pop()
                np.copyto(kept.bytes, held.push.bytes)
            else:
                kept = held.push.copy()
            held.push, held.is_borrowed = kept, False

    def settle(self, start: int, entries: Sequence[Entry]) -> None:
        """Apply decisions; entries applied before are skipped. `start` is the place of the first one."""
        if not self.holds_something:
            return  # no replica pushes or pulls here
        if start > self.num_settled:
            raise Refusal("log", f"expected log entries starting at {self.num_settled}, got {start}")
        for entry in entries[self.num_settled - start :]:
            if entry.decision is Decision.CLOSE:
                self._close(entry.sequence)
            else:
                self._carry_out(entry)
            self.num_settled += 1

    def snapshot(self, start: int, entries: Sequence[Entry], step: int) -> None:
        """Copy the snapshot of `step` into `snapshot_arrays`, after the last `entries` before it."""
        self.settle(start, entries)
        for key in list(self._held):
            self._tear(key)
        self.arrays.copy_into(self.snapshot_arrays, self._copy_arrays)
        for table, copy in zip(self.tables, self.snapshot_tables, strict=True):
            table.expire(self.version)
            table.copy_into(copy)
        self.snapshot_step = step

    def pull_rows(self, ids: Sequence[NDArray[np.int64]], room: Room) -> memoryview:
        """Return the rows of `ids` of each table: in memory from `room`, or in memory that is used again.

        Raises InputError if an id is not of this shard.
        """
        rows, counts = self.push_layout.rows, [len(some) for some in ids]
        nbytes = rows.values_nbytes(counts)
        body = room(nbytes)
        if body is None:
            if len(self._pulled) < nbytes:
                self._pulled = np.empty(nbytes + nbytes // 4, np.uint8)
            body = self._pulled[:nbytes].data
        for table, some, out in zip(self.tables, ids, rows.values(np.frombuffer(body, np.uint8), counts), strict=True):
            table.pull(some, out)
        return body

    def check_rows(self, push: PushBuffer) -> None:
        """Raise InputError if `push` names a row of another shard, or of a table without an optimizer."""
        for table, (ids, _) in zip(self.tables, push.rows(), strict=True) if self.tables else ():
            places_of(table.spec.name, ids, table.spec.num_rows, table.shard, table.num_shards)
            if len(ids) and table.optimizer is None:
                raise InputError((f"no optimizer trains table {table.spec.name!r}, but a push contains rows of it",))

    @property
    def holds_something(self) -> bool:
        """Whether this shard has anything to push to, or pull from."""
        return bool(self.layout.nbytes or self.tables)

    def statistics(self) -> dict[str, Any]:
        """Return counters, as plain data."""
        return {
            "version": self.version,
            "arena_bytes": self.layout.nbytes,
            "created_rows": {table.spec.name: table.num_created for table in self.tables},
            "held_pushes": len(self._held),
            "torn_pushes": self.torn_pushes,
        }

    def _carry_out(self, entry: Entry) -> None:
        key = (entry.replica, entry.incarnation)
        held = self._held.get(key)
        if held is None or held.sequence != entry.sequence:
            if entry.decision is Decision.DROP:
                return
            raise Refusal(
                "log",
                f"push {entry.sequence} of {replica_name(entry.replica)} was decided, but never reached this shard",
            )
        self._settled[key] = entry.sequence
        if entry.decision is Decision.APPLY:
            self._apply(held)
        elif entry.decision is Decision.SUM:
            self._round.add(held.push)
        self._release(key)

    def _close(self, num_gradients: int) -> None:
        num_summed = self._round.num_gradients
        if num_gradients != num_summed or not num_summed:
            raise Refusal("log", f"a round of {num_gradients} gradients is closed, but {num_summed} are summed here")
        self._update(*self._round.mean())

    def _apply(self, held: _Held) -> None:
        if self._staleness_aware:
            scaled = [rule.is_scaled_by_staleness for rule in self.optimizers]
            held.push.learning_rates[scaled] /= max(1, self.version - held.version)
        self._update(held.push, held.push.rows() if self.tables else [])

    def _tear(self, key: Incarnation) -> None:
        self._release(key)
        self.torn_pushes += 1

    def _release(self, key: Incarnation) -> None:
        held = self._held.pop(key)
        if not held.is_borrowed and not self.tables:  # with tables, each push has its own size
            self._spare.append(held.push)

    def _make_tables(self, specs: Sequence[TableSpec]) -> list[Table]:
        optimizers = [None if spec.optimizer is None else self.optimizers[spec.optimizer] for spec in specs]
        shard = self.layout.index
        return [Table(spec, rule, shard, self.num_shards) for spec, rule in zip(specs, optimizers, strict=True)]

    def _update(self, push: PushBuffer, rows: RowGradients) -> None:
        """Apply a push as an update, in place. Its gradients are used up."""
        self.version += 1
        for table, (ids, gradients) in zip(self.tables, rows, strict=True) if self.tables else ():
            if len(ids):
                assert table.spec.optimizer is not None
                rate = float(push.learning_rates[table.spec.optimizer])
                table.push(ids, gradients, learning_rate=rate, num_updates=self.version)
        is_whole = push.mask.tobytes() == self._whole_mask
        self.arena.begin(self.version)
        for index, group in enumerate(self.layout.groups):
            if group.optimizer is None:
                continue
            blocks: Iterable[_Block] = self._blocks[index]
            if not is_whole:
                runs = self._runs(group, push.mask)
                blocks = [block for start, stop in runs for block in self._cut(index, start, stop)]
            rule, rate = self.optimizers[group.optimizer], float(push.learning_rates[group.optimizer])
            gradients = push.gradients_of(group)
            for start, stop, values, parameters, slots, scratch in blocks:
                self.arena.advance(start, stop)
                rule.update(UpdateOperands(parameters, gradients[values], slots, scratch, rate, self.version))
        self.arena.end()

    def _cut(self, index: int, start: int, stop: int) -> Iterator[_Block]:
        """Cut the bytes from `start` to `stop` of a group into blocks: a rule makes several passes over each."""
        group, parameters, slots = self.layout.groups[index], self._parameters[index], self.arrays.slots[index]
        itemsize = parameters.itemsize
        first, last = (start - group.start) // itemsize, (stop - group.start) // itemsize
        for begin in range(first, last, BLOCK_SIZE):
            values = slice(begin, min(begin + BLOCK_SIZE, last))
            yield _Block(
                group.start + begin * itemsize,
                group.start + values.stop * itemsize,
                values,
                parameters[values],
                {name: slot[values] for name, slot in slots.items()},
                self._scratch[index][: values.stop - begin],
            )

    def _runs(self, group: ArenaGroup, mask: NDArray[np.uint8]) -> list[tuple[int, int]]:
        """Return the byte ranges of the group's pieces that have a gradient, with neighbours joined."""
        runs: list[tuple[int, int]] = []
        for piece, present in zip(self._pieces, mask, strict=True):
            if not present or not group.start <= piece.offset < group.stop:
                continue
            start, stop = piece.offset, piece.offset + piece.nbytes
            if runs and runs[-1][1] == start:
                start = runs.pop()[0]
            runs.append((start, stop))
        return runs

    def _view(self, group: ArenaGroup, buffer: NDArray[np.uint8]) -> FloatArray:
        return buffer[group.start : group.stop].view(group.dtype)
