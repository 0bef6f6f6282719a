"""Defines the bodies of every step: a push, and the grant that answers it. Fixed binary formats."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.specs.layout import ArenaGroup, ShardLayout, aligned
from psflow.ps_runtime.specs.variables import TableSpec

MAX_ROWS = 1 << 22
"""Maximum number of ids of one table in one message."""

_WORD = 8


@dataclass(frozen=True)
class RowLayout:
    """The layout of the rows of a model's tables in a body.

    Ids are ``[number of ids of each table | ids of the first table | ...]``, and values are
    ``[(n, dim) of the first table | ...]``, each table's at a multiple of 8 bytes.
    """

    tables: tuple[TableSpec, ...]

    def ids_nbytes(self, counts: Sequence[int]) -> int:
        """Return the size of ids, with this many of each table."""
        return _WORD * (len(self.tables) + sum(counts))

    def values_nbytes(self, counts: Sequence[int]) -> int:
        """Return the size of the rows' values, with this many of each table."""
        return sum([_padded(nbytes * n) for nbytes, n in zip(self._rows_nbytes, counts, strict=True)])

    def max_nbytes(self, num_shards: int) -> int:
        """Return the maximum size of ids and values together, to or from one of `num_shards` shards."""
        counts = self.max_counts(num_shards)
        return self.ids_nbytes(counts) + self.values_nbytes(counts)

    def max_counts(self, num_shards: int) -> list[int]:
        """Return the maximum number of rows of each table in one message, to or from one of `num_shards` shards."""
        return [min(MAX_ROWS, math.ceil(table.num_rows / num_shards)) for table in self.tables]

    def write_ids(self, body: NDArray[np.uint8], ids: Sequence[NDArray[np.int64]]) -> int:
        """Write the ids of each table to the beginning of `body`; return where they end."""
        words = body[: self.ids_nbytes([len(some) for some in ids])].view(np.int64)
        words[: len(ids)] = [len(some) for some in ids]
        at = len(ids)
        for some in ids:
            words[at : at + len(some)] = some
            at += len(some)
        return at * _WORD

    def read_ids(self, body: NDArray[np.uint8]) -> tuple[list[NDArray[np.int64]], int]:
        """Return the ids of each table at the beginning of `body`, and where they end.

        The ids are copies: they decide where rows are read and written, and `body` may be memory of the peer.

        Raises ProtocolError if the body is too short for the counts at its start, or a count is out of bounds.
        """
        num_tables = len(self.tables)
        if len(body) < _WORD * num_tables:
            raise ProtocolError("peer", f"{len(body)} bytes cannot hold ids of {num_tables} tables")
        counts = body[: _WORD * num_tables].view(np.int64).tolist()
        if any(not 0 <= n <= MAX_ROWS for n in counts) or len(body) < self.ids_nbytes(counts):
            raise ProtocolError("peer", f"{len(body)} bytes cannot hold {counts} ids")
        ids, at = [], num_tables * _WORD
        for n in counts:
            ids.append(body[at : at + n * _WORD].view(np.int64).copy())
            at += n * _WORD
        return ids, at

    def values(self, body: NDArray[np.uint8], counts: Sequence[int]) -> list[NDArray[Any]]:
        """Return views ``(n, dim)`` of the values of each table, which fill `body`.

        Raises ProtocolError if they do not fill the body.
        """
        if len(body) != self.values_nbytes(counts):
            raise ProtocolError("peer", f"expected {self.values_nbytes(counts)} bytes of rows, got {len(body)}")
        views, at = [], 0
        for table, row_nbytes, n in zip(self.tables, self._rows_nbytes, counts, strict=True):
            nbytes = row_nbytes * n
            views.append(body[at : at + nbytes].view(table.dtype).reshape(n, table.dim))
            at += _padded(nbytes)
        return views

    @cached_property
    def _rows_nbytes(self) -> tuple[int, ...]:
        return tuple(table.row_nbytes for table in self.tables)


def _padded(nbytes: int) -> int:
    return -(-nbytes // _WORD) * _WORD


GRANT = struct.Struct("<qqqqq")
"""Start of the body of a GRANT: global_step, epoch, start, stop, staleness of the last push. With several ps, the
entries follow that the replica passes on to the others.
"""

_COUNT_BYTES = 8


@dataclass(frozen=True)
class PushLayout:
    """The layout of a push to one shard.

    ``[num_examples | learning rate of each optimizer | a byte for each piece: has a gradient | gradients | rows]``,
    the gradients aligned and laid out as the shard's arena is, the rows of tables aligned too.
    """

    num_optimizers: int
    num_pieces: int
    gradient_nbytes: int
    rows: RowLayout = field(default_factory=lambda: RowLayout(()))

    @classmethod
    def of(cls, layout: ShardLayout, num_optimizers: int, tables: Sequence[TableSpec] = ()) -> PushLayout:
        """Return the layout of pushes to the shard that `layout` describes."""
        num_pieces = sum(p.offset + p.nbytes <= layout.gradient_nbytes for p in layout.pieces)
        return cls(num_optimizers, num_pieces, layout.gradient_nbytes, RowLayout(tuple(tables)))

    @property
    def rates_start(self) -> int:
        """Offset of the learning rates."""
        return _COUNT_BYTES

    @cached_property
    def mask_start(self) -> int:
        """Offset of the mask of pieces."""
        return self.rates_start + 8 * self.num_optimizers

    @cached_property
    def gradients_start(self) -> int:
        """Offset of the gradients."""
        return aligned(self.mask_start + self.num_pieces)

    @cached_property
    def rows_start(self) -> int:
        """Offset of the ids and rows of tables."""
        end = self.gradients_start + self.gradient_nbytes
        return aligned(end) if self.rows.tables else end

    def nbytes(self, counts: Sequence[int] = ()) -> int:
        """Return the size of a push in bytes, with this many rows of each table."""
        if not self.rows.tables:
            return self.rows_start
        return self.rows_start + self.rows.ids_nbytes(counts) + self.rows.values_nbytes(counts)


class PushBuffer:
    """One push, as views of one buffer: the worker fills it, the shard reads it.

    Raises ProtocolError if `buffer` has another length than `layout` says.
    """

    def __init__(self, layout: PushLayout, buffer: bytes | bytearray | memoryview) -> None:
        if len(buffer) < layout.rows_start or (len(buffer) != layout.rows_start and not layout.rows.tables):
            raise ProtocolError("peer", f"expected a push of {layout.rows_start} bytes, got {len(buffer)}")
        self._layout = layout
        self.body = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
        """The buffer itself, to be sent."""
        self.bytes: NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
        if not self.bytes.flags.writeable:
            self.bytes = self.bytes.copy()
        self._count: NDArray[np.uint64] = self.bytes[:_COUNT_BYTES].view(np.uint64)
        self._views: dict[tuple[int, int, str], NDArray[Any]] = {}
        self._ids: tuple[list[NDArray[np.int64]], int] | None = None
        self._rows: list[tuple[NDArray[np.int64], NDArray[Any]]] | None = None if layout.rows.tables else []
        self.learning_rates: NDArray[np.float64] = self.bytes[layout.rates_start : layout.mask_start].view(np.float64)
        self.mask: NDArray[np.uint8] = self.bytes[layout.mask_start : layout.mask_start + layout.num_pieces]
        self.gradients: NDArray[np.uint8] = self.bytes[layout.gradients_start :][: layout.gradient_nbytes]

    @classmethod
    def empty(cls, layout: PushLayout, counts: Sequence[int] = ()) -> Self:
        """Return a new, empty push with room for this many rows of each table."""
        return cls(layout, bytearray(layout.nbytes(counts)))

    def gradients_of(self, group: ArenaGroup) -> NDArray[Any]:
        """Return the gradients of a group of the arena; the same view each time."""
        key = (group.start, group.stop, group.dtype)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = self.gradients[group.start : group.stop].view(group.dtype)
        return view

    def copy(self) -> Self:
        """Return a copy of the push in its own memory."""
        other = type(self)(self._layout, self.bytes.copy().data)
        other._ids = self._ids
        return other

    def write_rows(self, gradients: Sequence[tuple[NDArray[np.int64], NDArray[Any], Any]]) -> None:
        """Write ids and gradients of each table, for which the buffer has room; `body` takes the bytes."""
        views = self.place_rows([ids for ids, _, _ in gradients])
        for view, (_, values, places) in zip(views, gradients, strict=True):
            if isinstance(places, slice):
                view[...] = values
            else:
                values.take(places, axis=0, out=view, mode="clip")  # the other modes take through a copy of `out`

    def place_rows(self, ids: Sequence[NDArray[np.int64]]) -> list[NDArray[Any]]:
        """Write the ids of each table; return views in which to write their gradients."""
        rows, body = self._layout.rows, self.bytes[self._layout.rows_start :]
        start = rows.write_ids(body, ids)
        counts = [len(some) for some in ids]
        stop = start + rows.values_nbytes(counts)
        self.body = memoryview(self.bytes.data)[: self._layout.rows_start + stop]
        views = rows.values(body[start:stop], counts)
        self._ids = (list(ids), start)
        self._rows = list(zip(ids, views, strict=True))
        return views

    def rows(self) -> list[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Return ids of each table and views of their gradients; ids are read once, as the peer may change them.

        Raises ProtocolError if the size of the buffer is not the one that its counts require.
        """
        if self._rows is None:
            body = self.bytes[self._layout.rows_start :]
            if self._ids is None:
                self._ids = self._layout.rows.read_ids(body)
            ids, end = self._ids
            self._rows = list(zip(ids, self._layout.rows.values(body[end:], [len(some) for some in ids]), strict=True))
        return self._rows

    @property
    def num_examples(self) -> int:
        """Number of examples of the gradient."""
        return int(self._count[0])

    @num_examples.setter
    def num_examples(self, value: int) -> None:
        self._count[0] = value
