"""Writes the push of one replica to one ps, into the memory that the ps will read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.client.pulls import Splits
from psflow.ps_runtime.model.lookups import RowGradient
from psflow.ps_runtime.numeric import first_non_finite
from psflow.ps_runtime.protocol.payloads import PushBuffer, PushLayout
from psflow.ps_runtime.specs.layout import ShardLayout, piece_views
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec
from psflow.ps_runtime.transport.base import Connection

Gradients = Mapping[str, NDArray[Any] | RowGradient]
"""Of variables by name, and of tables by name."""


class NonFinite(NamedTuple):
    """The first value of a push that is NaN or infinite; `row` is the id of a table's row, None of a variable."""

    variable: str
    row: int | None
    value: float


@dataclass(frozen=True, slots=True)
class _Body:
    """A buffer and its views."""

    room: memoryview
    push: PushBuffer
    views: Sequence[NDArray[Any]]
    """The places of the gradients, by piece."""
    buffers: Mapping[str, NDArray[Any]]
    """Of these, the variables that lie in one piece."""


class PushWriter:
    """Writes pushes to one shard."""

    def __init__(self, layout: ShardLayout, model: ModelSpec, splits: Splits) -> None:
        self._layout = layout
        self._push_layout = PushLayout.of(layout, len(model.optimizers), model.tables)
        self._tables = tables = model.tables
        shapes = {variable.name: variable.shape for variable in model.variables}
        pieces = layout.pieces[: self._push_layout.num_pieces]
        self._names = [p.variable for p in pieces]
        """The variable of each piece that has gradients."""
        self._parts = [None if p.shape == shapes[p.variable] else slice(p.row_start, p.row_stop) for p in pieces]
        """The rows of each; None: all."""
        self._splits = splits
        ends = [sum(p.offset + p.nbytes <= group.stop for p in layout.pieces) for group in layout.groups]
        self._groups = [
            (group, end - start)
            for group, start, end in zip(layout.groups, [0, *ends], ends, strict=False)
            if group.optimizer is not None
        ]
        """The groups that have gradients, and how many pieces they have."""
        rows = self._push_layout.rows
        self._max_nbytes = self._push_layout.nbytes(rows.max_counts(len(splits)) if tables else ())
        self._own_room = memoryview(b"")
        self._bodies: list[_Body] = []
        """Recent ones: of either half of the connection's memory, or of our own."""

    def write(
        self, connection: Connection, gradients: Gradients, learning_rates: Sequence[float], num_examples: int
    ) -> PushBuffer:
        """Return a push for `connection`, in its memory if it has any for that. Valid until the next call."""
        rows = [self._rows_of(table, gradients.get(table.name)) for table in self._tables] if self._tables else ()
        body = self._body(connection, [len(ids) for ids, _, _ in rows])
        push = body.push
        push.num_examples = num_examples
        for index, rate in zip(range(len(push.learning_rates)), learning_rates, strict=True):
            push.learning_rates[index] = rate
        self._write_dense(body, gradients)
        if self._tables:
            push.write_rows(rows)
        return push

    def _write_dense(self, body: _Body, gradients: Gradients) -> None:
        """Write the gradients of variables; those of a group that all are to be copied, by one call."""
        push = body.push
        given: list[Any] = [*map(gradients.get, self._names)]
        if all(map(is_, given, body.views)):
            push.mask[:] = 1  # all were made there
            return
        values: list[Any] = []
        for value, part, view in zip(given, self._parts, body.views, strict=True):
            if value is not None:
                if value.base is not None and value is not view and np.may_share_memory(value, push.bytes):
                    value = value.copy()  # it was made in the place of another
                if part is not None:
                    value = value[part]
            values.append(value)
        push.mask[:] = [value is not None for value in values]
        places = zip(values, body.views, strict=True)
        for group, num_pieces in self._groups:
            copied = [(v, view) for v, view in itertools.islice(places, num_pieces) if v is not None and v is not view]
            if copied and len(copied) == num_pieces:
                np.concatenate([value for value, _ in copied], axis=None, out=push.gradients_of(group))
            else:
                for value, view in copied:
                    np.copyto(view, value, casting="same_kind")

    def non_finite(self, push: PushBuffer) -> NonFinite | None:
        """Return the NaN or infinite value in `push`, as `write` has just made it; None if all is finite.

        It is checked here and not where a gradient was computed, because the dtype of a variable may be too small for
        it. It costs a pass over bytes that are still in the cache.
        """
        for table, (ids, values) in zip(self._tables, push.rows(), strict=True) if self._tables else ():
            if (found := first_non_finite(values)) is not None:
                return NonFinite(table.name, int(ids[found[0]]), found[1])
        for group in self._layout.groups:
            if group.optimizer is not None and first_non_finite(push.gradients_of(group)):
                return self._non_finite_piece(push)
        return None

    def _non_finite_piece(self, push: PushBuffer) -> NonFinite | None:
        """Check each gradient that `push` has; unused places hold gradients of an earlier push."""
        for index, view in enumerate(piece_views(self._layout, push.gradients)):
            if push.mask[index] and (found := first_non_finite(view)) is not None:
                return NonFinite(self._layout.pieces[index].variable, None, found[1])
        return None

    def buffers(self, connection: Connection) -> Mapping[str, NDArray[Any]]:
        """Return the places of the gradients in the next push to `connection`, for variables that lie in one piece."""
        return self._body(connection, ()).buffers

    def _rows_of(self, table: TableSpec, gradient: Any) -> tuple[NDArray[np.int64], NDArray[Any], Any]:
        """Return the ids of this shard, the gradients of all, and which of these belong to this shard."""
        if gradient is None:
            return np.empty(0, np.int64), np.empty((0, table.dim), table.dtype), slice(None)
        mine = self._splits.of(gradient.ids)[self._layout.index]
        return gradient.ids[mine], gradient.values, mine

    def _body(self, connection: Connection, counts: Sequence[int]) -> _Body:
        """Return a body in the memory of the connection, which has room for the largest, or otherwise in our own."""
        room = connection.outbox(self._max_nbytes)
        if room is None:
            nbytes = self._push_layout.nbytes(counts) if self._tables else self._max_nbytes
            if len(self._own_room) < nbytes:
                self._own_room = np.zeros(nbytes + nbytes // 4 if self._tables else nbytes, np.uint8).data
            room = self._own_room
        for body in self._bodies:
            if body.room is room:
                return body
        push = PushBuffer(self._push_layout, room)
        views = piece_views(self._layout, push.gradients)
        whole = ((name, view) for name, part, view in zip(self._names, self._parts, views, strict=True) if part is None)
        body = _Body(room, push, views, dict(whole))
        self._bodies = [body, *self._bodies[:1]]
        return body
