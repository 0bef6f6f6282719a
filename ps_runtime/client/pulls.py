"""Pulls variables from every ps, and rows of sparse tables from the ps that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.client.shard_client import ShardClients
from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import NO_BODY, Kind, Message
from psflow.ps_runtime.protocol.payloads import GRANT, RowLayout
from psflow.ps_runtime.protocol.wire_codec import WireCodec
from psflow.ps_runtime.specs.layout import ShardLayout, piece_views
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec
from psflow.ps_runtime.transport.base import ReadableArena

Ids = NDArray[np.int64]

_NUM_KNOWN = 64


class Splits:
    """Splits arrays of ids over shards, and caches recent results.

    Notes
    -----
    Not thread-safe. An array is known by its identity: it must not change.
    """

    def __init__(self, num_shards: int) -> None:
        self._num_shards = num_shards
        self._known: dict[int, tuple[Ids, tuple[Any, ...]]] = {}

    def __len__(self) -> int:
        return self._num_shards

    def of(self, ids: Ids) -> tuple[Any, ...]:
        """Return for each shard the part of ``(n,)`` `ids` that lies on it: their indices and their rows.

        Examples
        --------
        >>> Splits(2).of(np.array([4, 7, 8]))
        (array([0, 2]), array([1]))
        """
        if self._num_shards == 1:
            return (slice(None),)
        known = self._known.get(id(ids))  # `known` holds its array, so that no other can have this id
        if known is None or known[0] is not ids:
            if len(self._known) >= _NUM_KNOWN:
                self._known.clear()
            known = self._known[id(ids)] = (ids, self._split(ids))
        return known[1]

    def _split(self, ids: Ids) -> tuple[NDArray[np.intp], ...]:
        shards = ids - ids // self._num_shards * self._num_shards  # four times as fast as a remainder
        return tuple(np.flatnonzero(shards == shard) for shard in range(self._num_shards))


REPLY_TIMEOUT_SECS = 60.0
"""For replies that no ps ever holds."""
MAX_CARRIED_BYTES = 1024 * 1024
"""Of parameters that come with a ticket: of more, the copy that they need costs more than a round trip."""


class PulledVariables:
    """The variables of a model, one version of each shard.

    Notes
    -----
    `variables` holds views that `finish` refreshes in place. Not thread-safe.
    """

    def __init__(
        self,
        shards: ShardClients,
        model: ModelSpec,
        layouts: Sequence[ShardLayout],
        codecs: Sequence[WireCodec],
        *,
        in_place: bool,
    ) -> None:
        self._shards = tuple(shards)
        self._codecs = codecs
        self._layouts = layouts
        self._readers = [shard.connection.arena if in_place else None for shard in shards]
        self._arenas = [
            np.zeros(layout.nbytes, np.uint8) if reader is None else reader.bytes
            for layout, reader in zip(layouts, self._readers, strict=True)
        ]
        self.versions = [0] * len(shards)
        """Of each shard, when it was last pulled."""
        self._asked: dict[int, Message] = {}
        self._carried: Message | None = None
        """The answer of the only ps that brought the values for the next `finish`."""
        may_carry = len(layouts) == 1 and 0 < layouts[0].nbytes <= MAX_CARRIED_BYTES
        carried_nbytes = GRANT.size + codecs[0].arena_nbytes(self._arenas[0])
        self.room = np.empty(carried_nbytes, np.uint8).data if may_carry else None
        """Memory for an answer to a push that brings the values: of its size, so that no other answer comes there."""
        self._split: dict[str, tuple[NDArray[Any], list[tuple[slice, NDArray[Any]]]]] = {}
        self.variables: Mapping[str, NDArray[Any]] = self._find(model)

    @property
    def may_come_with_ticket(self) -> bool:
        """Whether the answer to a push should bring the values: that saves a round trip of a pull."""
        connection = self._shards[0].connection
        return self.room is not None and connection.arena is None and not connection.is_direct

    def carry(self, answer: Message) -> None:
        """Keep the values that an answer brought behind its grant, in `room`, for the next `start`.

        Raises ProtocolError if the answer has another size: then it does not lie there.
        """
        if self.room is None or len(answer.body) != len(self.room):
            expected = 0 if self.room is None else len(self.room)
            reason = f"expected {expected} bytes as a grant with parameters, got {len(answer.body)}"
            raise ProtocolError("ps-0", reason)
        self._carried = answer

    def drop(self) -> None:
        """Forget the values that an answer brought: the next `start` asks for them."""
        self._carried = None

    def start(self, log: bytes, *, has_log: bool = False) -> None:
        """Send the pull requests; send no other request to the ps before `finish`."""
        if self._carried is not None:
            return
        for index, layout in enumerate(self._layouts):
            shard = self._shards[index]
            if (has_log or index == 0) and shard.connection.arena is not None:
                continue
            is_read = shard.connection.arena is not None or not layout.nbytes  # the request carries the version of then
            ask = Message(Kind.PULL, flags=NO_BODY if is_read else 0, body=log if index else b"")
            self._asked[index] = ask
            shard.send(ask)

    def finish(self) -> None:
        """Refresh `variables`. Blocks."""
        for index, layout in enumerate(self._layouts):
            if index not in self._asked and self._carried is None and (layout.nbytes or self._reader(index)):
                self._read(index)  # while the others work
        for index, ask in reversed(self._asked.items()):  # the last one answers last: the rest is there by then
            self._receive(index, ask)
            if self._reader(index) or (ask.flags & NO_BODY and self._layouts[index].nbytes):
                self._read(index)
        self._asked.clear()
        if self._carried is not None:
            values, codec = memoryview(self._carried.body)[GRANT.size :], self._codecs[0]
            codec.decode_arena(values, self._arenas[0])
            if not codec.narrows_parameters:
                np.copyto(self._arenas[0], np.frombuffer(values, np.uint8))
            self.versions[0] = self._carried.version
            self._carried = None
        for whole, parts in self._split.values():
            for rows, part in parts:
                whole[rows] = part

    def _receive(self, index: int, ask: Message) -> None:
        arena, codec = self._arenas[index], self._codecs[index]
        into = None if ask.flags & NO_BODY else codec.arena_room(arena)
        reply = self._shards[index].receive("send the parameters", REPLY_TIMEOUT_SECS, into)
        if into is not None:
            codec.decode_arena(reply.body, arena)
        self.versions[index] = reply.version

    def _reader(self, index: int) -> ReadableArena | None:
        """Return what reads the arena of a ps without a request, on the present connection; None: nothing does."""
        return self._shards[index].connection.arena

    def _read(self, index: int) -> None:
        reader = self._reader(index)
        if self._readers[index] is not None:  # the values are there; without a connection, the version of the reply is
            self.versions[index] = self.versions[index] if reader is None else reader.version
            return
        version = None if reader is None else reader.read(self._arenas[index])
        if version is None:  # it changed all the while, or is no longer shared: only the ps has one consistent version
            ask = Message(Kind.PULL)
            self._shards[index].send(ask)
            self._receive(index, ask)
        else:
            self.versions[index] = version

    def _find(self, model: ModelSpec) -> dict[str, NDArray[Any]]:
        parts: dict[str, list[tuple[slice, NDArray[Any]]]] = {}
        for layout, arena in zip(self._layouts, self._arenas, strict=True):
            for piece, view in zip(layout.pieces, piece_views(layout, arena), strict=True):
                parts.setdefault(piece.variable, []).append((slice(piece.row_start, piece.row_stop), view))
        for variable in model.variables:
            if len(parts[variable.name]) > 1:
                whole = np.zeros(variable.shape, variable.dtype)
                self._split[variable.name] = (whole, parts[variable.name])
        return {name: self._split[name][0] if name in self._split else views[0][1] for name, views in parts.items()}


class RowClient:
    """Pulls rows, some of them ahead of time. A `RowSource` for calls of model_fn.

    Notes
    -----
    Not thread-safe. The ids of a pull are those of a shard in the order in which they are given.

    Rows are not copied where their memory can be kept: they are those of one reply, the first of a step.
    """

    def __init__(
        self, shards: ShardClients, tables: Sequence[TableSpec], splits: Splits, codecs: Sequence[WireCodec]
    ) -> None:
        self._shards = shards
        self._codecs = codecs
        self._splits = splits
        self._layout = RowLayout(tuple(tables))
        self._known: dict[str, tuple[Ids, NDArray[Any]]] = {}
        self._coming: dict[str, tuple[Ids, NDArray[Any]]] = {}
        self._asked: list[Ids] | None = None
        self.num_pulled = 0

    def rows(self, spec: TableSpec, ids: Ids) -> NDArray[Any]:
        """Return the rows of ``(n,)`` unique `ids`, ``(n, dim)``: pulled in this step before, or now.

        Valid until `finish` or `forget`. Blocks.
        """
        known = self._known.get(spec.name)
        if known is None or known[0] is not ids:
            self._take_what_was_asked(may_keep=False)
            wanted = {table.name: ids if table.name == spec.name else ids[:0] for table in self._layout.tables}
            self._send(wanted, b"")
            known = self._known[spec.name] = (ids, self._receive(may_keep=not self._known)[spec.name])
        return known[1]

    def start(self, wanted: Mapping[str, Ids], log: bytes) -> None:
        """Request rows in advance; send no other request to the ps before `finish`."""
        self._send({table.name: wanted.get(table.name, _NONE) for table in self._layout.tables}, log)

    def finish(self) -> None:
        """Wait for the rows that `start` requested: `rows` has them from now on, and no others. Blocks."""
        self._take_what_was_asked(may_keep=True)
        self._known, self._coming = self._coming, {}

    def forget(self) -> None:
        """Begin a step without requests in advance: rows returned before are used no more."""
        self._known = {}

    def _take_what_was_asked(self, *, may_keep: bool) -> None:
        if self._asked is not None:
            ids = dict(zip((table.name for table in self._layout.tables), self._asked, strict=True))
            self._coming = {name: (ids[name], rows) for name, rows in self._receive(may_keep=may_keep).items()}

    def _send(self, wanted: Mapping[str, Ids], log: bytes) -> None:
        self._asked = list(wanted.values())
        for index, shard in enumerate(self._shards):
            mine = [some[self._splits.of(some)[index]] for some in self._asked]
            nbytes = self._layout.ids_nbytes([len(some) for some in mine])
            entries = log if index else b""
            body = shard.connection.outbox(nbytes + len(entries)) or memoryview(bytearray(nbytes + len(entries)))
            self._layout.write_ids(np.frombuffer(body, np.uint8), mine)
            body[nbytes:] = entries
            shard.send(Message(Kind.PULL_ROWS, body=body))

    def _receive(self, *, may_keep: bool) -> dict[str, NDArray[Any]]:
        assert self._asked is not None
        ids, self._asked = self._asked, None
        found = self._whole(ids, may_keep=may_keep) if len(self._shards) == 1 else self._joined(ids)
        self.num_pulled += sum(len(some) for some in ids)
        return {table.name: rows for table, rows in zip(self._layout.tables, found, strict=True)}

    def _whole(self, ids: Sequence[Ids], *, may_keep: bool) -> list[NDArray[Any]]:
        """Return the rows of a single ps: in the memory of the reply, if that can be kept."""
        (shard,), (codec,) = self._shards, self._codecs
        reply = shard.receive("send rows", REPLY_TIMEOUT_SECS)
        values = codec.decode_rows(reply.body, [len(some) for some in ids])
        is_ours = codec.narrows_parameters or (may_keep and shard.connection.keep())
        return values if is_ours else [rows.copy() for rows in values]

    def _joined(self, ids: Sequence[Ids]) -> list[NDArray[Any]]:
        """Return the rows of several ps, joined."""
        tables = self._layout.tables
        found = [np.empty((len(some), table.dim), table.dtype) for table, some in zip(tables, ids, strict=True)]
        for index, shard in enumerate(self._shards):
            reply = shard.receive("send rows", REPLY_TIMEOUT_SECS)
            indices = [self._splits.of(some)[index] for some in ids]
            values = self._codecs[index].decode_rows(reply.body, [len(mine) for mine in indices])
            for table, rows, mine, some in zip(tables, found, indices, values, strict=True):
                record = np.dtype((np.void, table.row_nbytes))  # scattered faster than rows of a 2-d array
                rows.reshape(-1).view(record).put(mine, some.reshape(-1).view(record), mode="clip")
        return found


_NONE: Ids = np.empty(0, np.int64)
