"""A shard: one flat arena of parameters, the slots of its optimizers, and the pushes that wait for their commit.

ps-0 commits a push (see `job`), so any other shard gets to know of the commit only afterwards. It therefore *holds* a
push when it arrives and applies it when it learns that the push is committed: with the next message of the same member,
or from the dedupe table of a cut. A push whose commit never came is dropped and counted as torn. So a cut of all shards
holds exactly the committed pushes, and its dedupe table serves any number of ps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_runtime.optimizers.base import FloatArray, Optimizer
from ps_runtime.server.instructions import Life
from ps_runtime.specs.layout import Group, ShardLayout
from ps_runtime.transport.payloads import PushBuffer, PushLayout

__all__ = ["Shard", "ShardArrays"]


@dataclass(frozen=True)
class ShardArrays:
    """The parameters of a shard and the slots of each of its groups; `slots[g]` belongs to ``layout.groups[g]``."""

    arena: NDArray[np.uint8]
    slots: tuple[Mapping[str, FloatArray], ...]

    @classmethod
    def allocate(cls, layout: ShardLayout, optimizers: Sequence[Optimizer]) -> ShardArrays:
        """Return arrays for `layout`, touched, the slots at their initial values."""
        arena = np.zeros(layout.nbytes, np.uint8)
        arena.fill(0)  # touches the pages, so that the first copy into them is as fast as the later ones
        slots = []
        for group in layout.groups:
            optimizer = None if group.optimizer is None else optimizers[group.optimizer]
            size = (group.stop - group.start) // np.dtype(group.dtype).itemsize
            names = optimizer.slot_names if optimizer else ()
            slots.append({n: np.full(size, optimizer.initial_slot(n), group.dtype) for n in names if optimizer})
        return cls(arena, tuple(slots))

    def copy_into(self, other: ShardArrays) -> None:
        """Copy all arrays into those of `other`, which has the same layout."""
        np.copyto(other.arena, self.arena)
        for mine, theirs in zip(self.slots, other.slots, strict=True):
            for name, slot in mine.items():
                np.copyto(theirs[name], slot)


class Shard:
    """The shard machine: pulls, pushes, snapshots. No sockets, no clock; one caller at a time.

    Parameters
    ----------
    layout : ShardLayout
    optimizers : sequence of Optimizer
        Indexed by ``Group.optimizer``.
    """

    def __init__(self, layout: ShardLayout, optimizers: Sequence[Optimizer]) -> None:
        self.layout = layout
        self.optimizers = tuple(optimizers)
        self.push_layout = PushLayout.of(layout, len(self.optimizers))
        self.arrays = ShardArrays.allocate(layout, self.optimizers)
        self.snapshot_arrays = ShardArrays.allocate(layout, self.optimizers)
        self.snapshot_step: int | None = None
        """The global_step that `snapshot_arrays` are of."""
        self.version = 0
        self.is_ready = False
        self.torn_pushes = 0
        self._held: dict[Life, tuple[int, PushBuffer]] = {}
        self._spare: list[PushBuffer] = []
        self._scratch = [self._view(g, np.empty(layout.nbytes, np.uint8)) for g in layout.groups]
        self._pieces = [p for p in layout.pieces if p.offset + p.nbytes <= layout.gradient_nbytes]

    def initialize(self, parameters: bytes | bytearray | memoryview) -> None:
        """Take the first values of all parameters, as the bytes of the arena."""
        self.arrays.arena[:] = np.frombuffer(parameters, np.uint8)
        self.is_ready = True

    def restore(self, step: int) -> None:
        """Take over `snapshot_arrays`, which were filled from the checkpoint of `step`: as many updates it has seen."""
        self.snapshot_arrays.copy_into(self.arrays)
        self.snapshot_step = step
        self.version = step
        self.is_ready = True

    def hold(self, life: Life, sequence: int, push: PushBuffer) -> bool:
        """Keep a push until its commit is known; return False for the repeat of one that is held or committed."""
        self.settle(life, push.committed)
        held = self._held.get(life)
        if sequence <= push.committed or (held is not None and held[0] == sequence):
            return False
        if held is not None:
            self._drop(life)
        kept = self._spare.pop() if self._spare else PushBuffer(self.push_layout)
        np.copyto(kept.bytes, push.bytes)
        self._held[life] = (sequence, kept)
        return True

    def settle(self, life: Life, committed: int) -> None:
        """Apply the held push of `life` if its sequence is at most `committed`."""
        held = self._held.get(life)
        if held is not None and held[0] <= committed:
            self.apply(held[1])
            self._spare.append(self._held.pop(life)[1])

    def settle_all(self, lives: Mapping[Life, int]) -> None:
        """Apply or drop every held push as the dedupe table of a cut says: life -> sequence."""
        for life in list(self._held):
            self.settle(life, lives.get(life, 0))
            if life in self._held:
                self._drop(life)

    def apply(self, push: PushBuffer) -> None:
        """Apply a committed push to the arena, in place. The gradients of `push` are used up."""
        self.version += 1
        is_whole = bool(push.mask.all())
        for index, group in enumerate(self.layout.groups):
            if group.optimizer is None:
                continue
            for start, stop in [(group.start, group.stop)] if is_whole else self._runs(group, push.mask):
                self._update(index, group, start, stop, push)

    def snapshot(self, lives: Mapping[Life, int], step: int) -> None:
        """Copy the cut of `step`, which `lives` is the dedupe table of, into `snapshot_arrays`."""
        self.settle_all(lives)
        self.arrays.copy_into(self.snapshot_arrays)
        self.snapshot_step = step

    def statistics(self) -> dict[str, Any]:
        """Return counters, as plain data."""
        return {
            "version": self.version,
            "arena_bytes": self.layout.nbytes,
            "held_pushes": len(self._held),
            "torn_pushes": self.torn_pushes,
        }

    def _drop(self, life: Life) -> None:
        self._spare.append(self._held.pop(life)[1])
        self.torn_pushes += 1

    def _update(self, index: int, group: Group, start: int, stop: int, push: PushBuffer) -> None:
        optimizer = group.optimizer
        assert optimizer is not None
        size = np.dtype(group.dtype).itemsize
        run = slice((start - group.start) // size, (stop - group.start) // size)
        self.optimizers[optimizer].update(
            self.arrays.arena[start:stop].view(group.dtype),
            push.gradients[start:stop].view(group.dtype),
            {name: slot[run] for name, slot in self.arrays.slots[index].items()},
            self._scratch[index][run],
            learning_rate=float(push.learning_rates[optimizer]),
            num_updates=self.version,
        )

    def _runs(self, group: Group, mask: NDArray[np.uint8]) -> list[tuple[int, int]]:
        """Return the byte ranges of the group's pieces that have a gradient, neighbours joined."""
        runs: list[tuple[int, int]] = []
        for piece, present in zip(self._pieces, mask, strict=True):
            if not present or not group.start <= piece.offset < group.stop:
                continue
            start, stop = piece.offset, piece.offset + piece.nbytes
            if runs and runs[-1][1] == start:
                start = runs.pop()[0]
            runs.append((start, stop))
        return runs

    def _view(self, group: Group, buffer: NDArray[np.uint8]) -> FloatArray:
        return buffer[group.start : group.stop].view(group.dtype)
