"""Writes the push of one replica to one ps, into the memory that the ps will read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.client.pulls import Splits
from psflow.ps_runtime.model.lookups import RowGradient
from psflow.ps_runtime.numeric import first_non_finite
from psflow.ps_runtime.protocol.payloads import PushBuffer, PushLayout
from psflow.ps_runtime.specs.layout import ShardLayout, piece_views
from psflow.ps_runtime.specs.variables import TableSpec
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
    gradients: Mapping[str, list[tuple[int, slice | None, NDArray[Any]]]]
    """For each variable: piece, rows (None: of a scalar), and the target of the gradient."""
    buffers: Mapping[str, NDArray[Any]]
    """Of these, the variables that lie in one piece."""


class PushWriter:
    """Writes pushes to one shard."""

    def __init__(self, layout: ShardLayout, num_optimizers: int, tables: Sequence[TableSpec], splits: Splits) -> None:
        self._layout = layout
        self._push_layout = PushLayout.of(layout, num_optimizers, tables)
        self._tables = tables
        self._splits = splits
        rows = self._push_layout.rows
        self._max_nbytes = self._push_layout.nbytes(rows.max_counts(len(splits)) if tables else ())
        self._own_room = memoryview(b"")
        self._bodies: list[_Body] = []
        """Recent ones: of either half of the connection's memory, or of our own."""

    def write(
        self, connection: Connection, gradients: Gradients, learning_rates: Sequence[float], num_examples: int
    ) -> PushBuffer:
        """Return a push for `connection`, in its memory if it has any for that. Valid until the next call."""
        rows = [self._rows_of(table, gradients.get(table.name)) for table in self._tables]
        body = self._body(connection, [len(ids) for ids, _, _ in rows])
        push = body.push
        push.num_examples = num_examples
        push.learning_rates[:] = learning_rates
        push.mask[:] = 0
        gradients = {name: self._apart(body, name, gradient) for name, gradient in gradients.items()}
        for name, places in body.gradients.items():
            gradient = gradients.get(name)
            if gradient is None:
                continue
            for piece, part, view in places:
                if gradient is not view:
                    np.copyto(view, gradient if part is None else gradient[part], casting="same_kind")  # type: ignore[index, arg-type]
                push.mask[piece] = 1
        if self._tables:
            push.write_rows(rows)
        return push

    def non_finite(self, push: PushBuffer) -> NonFinite | None:
        """Return the NaN or infinite value in `push`, as `write` has just made it; None if all is finite.

        It is checked here and not where a gradient was computed, because the dtype of a variable may be too small for
        it. It costs a pass over bytes that are still in the cache.
        """
        for table, (ids, values) in zip(self._tables, push.rows(), strict=True):
            if (found := first_non_finite(values)) is not None:
                return NonFinite(table.name, int(ids[found[0]]), found[1])
        for group in self._layout.groups:
            if group.optimizer is not None and first_non_finite(
                push.gradients[group.start : group.stop].view(group.dtype)
            ):
                return self._non_finite_piece(push)
        return None

    def _non_finite_piece(self, push: PushBuffer) -> NonFinite | None:
        """Check each gradient that `push` has; unused places hold gradients of an earlier push."""
        for index, view in enumerate(piece_views(self._layout, push.gradients)):
            if push.mask[index] and (found := first_non_finite(view)) is not None:
                return NonFinite(self._layout.pieces[index].variable, None, found[1])
        return None

    @staticmethod
    def _apart(body: _Body, name: str, gradient: NDArray[Any] | RowGradient) -> NDArray[Any] | RowGradient:
        """Return a gradient made in its own place unchanged, and one made in the place of another as a copy."""
        if not isinstance(gradient, np.ndarray) or gradient.base is None or gradient is body.buffers.get(name):
            return gradient
        return gradient.copy() if np.may_share_memory(gradient, body.push.bytes) else gradient

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
            nbytes = self._push_layout.nbytes(counts)
            if len(self._own_room) < nbytes:
                self._own_room = np.zeros(nbytes + nbytes // 4 if self._tables else nbytes, np.uint8).data
            room = self._own_room
        for body in self._bodies:
            if body.room is room:
                return body
        push = PushBuffer(self._push_layout, room)
        gradients: dict[str, list[tuple[int, slice | None, NDArray[Any]]]] = {}
        for index, view in enumerate(piece_views(self._layout, push.gradients)):
            piece = self._layout.pieces[index]
            rows = slice(piece.row_start, piece.row_stop) if piece.shape else None
            gradients.setdefault(piece.variable, []).append((index, rows, view))
        buffers = {name: places[0][2] for name, places in gradients.items() if len(places) == 1}
        body = _Body(room, push, gradients, buffers)
        self._bodies = [body, *self._bodies[:1]]
        return body
