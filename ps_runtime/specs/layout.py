"""Places pieces of variables on shards, inside one flat arena per shard.

An arena is one byte buffer. Its groups, one per optimizer and dtype, are aligned and contiguous; groups without an
optimizer come last, so a gradient is a buffer of the same layout, truncated at `ShardLayout.gradient_nbytes`.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

ALIGNMENT_BYTES = 64
MIN_PIECE_BYTES = 64 * 1024
"""Variables smaller than this are not split."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows ``[row_start, row_stop)`` of a variable, at byte `offset` of its shard's arena."""

    variable: str
    row_start: int
    row_stop: int
    shape: tuple[int, ...]
    dtype: str
    offset: int

    @property
    def nbytes(self) -> int:
        """Size of the piece in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class ArenaGroup:
    """Bytes ``[start, stop)`` of an arena that share a dtype and an optimizer (None: not trainable)."""

    optimizer: int | None
    dtype: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """The arena of one shard. `pieces` are in the order of their offsets."""

    index: int
    pieces: tuple[Piece, ...]
    groups: tuple[ArenaGroup, ...]
    nbytes: int
    gradient_nbytes: int


def piece_views(layout: ShardLayout, buffer: NDArray[np.uint8]) -> list[NDArray[Any]]:
    """Return an array for each piece of `layout`: views of `buffer`, no copies.

    `buffer` may be truncated after the trainable groups; then the pieces beyond it have no view.
    """
    return [
        buffer[p.offset : p.offset + p.nbytes].view(p.dtype).reshape(p.shape)
        for p in layout.pieces
        if p.offset + p.nbytes <= buffer.nbytes
    ]


def place(model: ModelSpec, num_ps: int) -> tuple[ShardLayout, ...]:
    """Place the variables of `model` on `num_ps` shards, by bytes.

    Variables larger than a fair share are split by rows, and those with a partitioner as it decides, unless there is
    only one shard; then the largest piece goes to the emptiest shard. Deterministic: every role computes the same
    layouts.
    """
    fair_share = max(MIN_PIECE_BYTES, math.ceil(model.nbytes / num_ps))
    order = {v.name: i for i, v in enumerate(model.variables)}
    optimizer_of = {v.name: v.optimizer for v in model.variables}
    pieces = [piece for v in model.variables for piece in _split(v, _num_pieces(v, fair_share, num_ps))]
    emptiest = [(0, index) for index in range(num_ps)]
    shards: list[list[Piece]] = [[] for _ in range(num_ps)]
    for piece in sorted(pieces, key=lambda p: (-p.nbytes, order[p.variable], p.row_start)):
        load, index = heapq.heappop(emptiest)
        shards[index].append(piece)
        heapq.heappush(emptiest, (load + piece.nbytes, index))
    return tuple(_lay_out(index, pieces, order, optimizer_of) for index, pieces in enumerate(shards))


def _num_pieces(variable: VariableSpec, max_nbytes: int, num_ps: int) -> int:
    if num_ps == 1:
        return 1
    if variable.num_slices is not None:
        return variable.num_slices
    return min(variable.num_rows, math.ceil(variable.nbytes / max_nbytes)) or 1


def _split(variable: VariableSpec, num_pieces: int) -> list[Piece]:
    bounds = [variable.num_rows * i // num_pieces for i in range(num_pieces + 1)]
    return [
        Piece(
            variable.name,
            start,
            stop,
            (stop - start, *variable.shape[1:]) if variable.shape else (),
            variable.dtype,
            offset=0,
        )
        for start, stop in itertools.pairwise(bounds)
    ]


def _lay_out(
    index: int, pieces: list[Piece], order: Mapping[str, int], optimizer_of: Mapping[str, int | None]
) -> ShardLayout:
    def group_key(piece: Piece) -> tuple[bool, int, str]:
        optimizer = optimizer_of[piece.variable]
        return (optimizer is None, optimizer or 0, piece.dtype)

    placed: list[Piece] = []
    groups: list[ArenaGroup] = []
    end = gradient_nbytes = 0
    keys = sorted({group_key(p) for p in pieces})
    for key in keys:
        start = end = aligned(end)
        grouped = [p for p in pieces if group_key(p) == key]
        for p in sorted(grouped, key=lambda p: (order[p.variable], p.row_start)):
            placed.append(Piece(p.variable, p.row_start, p.row_stop, p.shape, p.dtype, end))
            end += p.nbytes
        untrained, optimizer, dtype = key
        groups.append(ArenaGroup(None if untrained else optimizer, dtype, start, end))
        if not untrained:
            gradient_nbytes = end
    return ShardLayout(index, tuple(placed), tuple(groups), end, gradient_nbytes)


def aligned(offset: int) -> int:
    """Return the next multiple of the alignment from `offset` on."""
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
