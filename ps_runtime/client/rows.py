"""Rows of sparse tables, pulled from the ps that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.client.pulled_variables import REPLY_TIMEOUT_SECS
from psflow.ps_runtime.client.shard_client import ShardClients
from psflow.ps_runtime.client.splitting import Splits
from psflow.ps_runtime.protocol.message import Kind, Message
from psflow.ps_runtime.protocol.row_payloads import RowLayout
from psflow.ps_runtime.specs.tables import TableSpec

__all__ = ["RowClient"]

Ids = NDArray[np.int64]


class RowClient:
    """Pulls rows; some of them ahead of time. A `RowSource` for calls of model_fn.

    Notes
    -----
    Not thread-safe. The ids of a pull are those of a shard in the order in which they are given.

    Rows are not copied where they came to memory that can be spared: they are those of one reply, the first of a step.
    """

    def __init__(self, shards: ShardClients, tables: Sequence[TableSpec], splits: Splits) -> None:
        self._shards = shards
        self._splits = splits
        self._layout = RowLayout(tuple(tables))
        self._known: dict[str, tuple[Ids, NDArray[Any]]] = {}
        self._coming: dict[str, tuple[Ids, NDArray[Any]]] = {}
        self._asked: list[Ids] | None = None
        self.num_pulled = 0

    def rows(self, spec: TableSpec, ids: Ids) -> NDArray[Any]:
        """Return the rows of ``(n,)`` unique `ids`, ``(n, dim)``: known of this step, or pulled now.

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
        """Ask for rows that will be wanted next; nothing else may be asked of the ps before `finish`."""
        self._send({table.name: wanted.get(table.name, _NONE) for table in self._layout.tables}, log)

    def finish(self) -> None:
        """Wait for the rows that `start` asked for: `rows` has them from now on, and no others. Blocks."""
        self._take_what_was_asked(may_keep=True)
        self._known, self._coming = self._coming, {}

    def forget(self) -> None:
        """Begin a step for which nothing was asked ahead: rows that were given before are used no more."""
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
            told = log if index else b""
            body = shard.connection.outbox(nbytes + len(told)) or memoryview(bytearray(nbytes + len(told)))
            self._layout.write_ids(np.frombuffer(body, np.uint8), mine)
            body[nbytes:] = told
            shard.send(Message(Kind.PULL_ROWS, body=body))

    def _receive(self, *, may_keep: bool) -> dict[str, NDArray[Any]]:
        assert self._asked is not None
        ids, self._asked = self._asked, None
        found = self._whole(ids, may_keep=may_keep) if len(self._shards) == 1 else self._joined(ids)
        self.num_pulled += sum(len(some) for some in ids)
        return {table.name: rows for table, rows in zip(self._layout.tables, found, strict=True)}

    def _whole(self, ids: Sequence[Ids], *, may_keep: bool) -> list[NDArray[Any]]:
        """Return what the only ps sends: in the memory that it came to, if that may and can be kept."""
        (shard,) = self._shards
        reply = shard.receive("send rows", REPLY_TIMEOUT_SECS)
        values = self._layout.values(np.frombuffer(reply.body, np.uint8), [len(some) for some in ids])
        return values if may_keep and shard.connection.keep() else [rows.copy() for rows in values]

    def _joined(self, ids: Sequence[Ids]) -> list[NDArray[Any]]:
        """Return what several ps send, put together."""
        tables = self._layout.tables
        found = [np.empty((len(some), table.dim), table.dtype) for table, some in zip(tables, ids, strict=True)]
        for index, shard in enumerate(self._shards):
            reply = shard.receive("send rows", REPLY_TIMEOUT_SECS)
            indices = [self._splits.of(some)[index] for some in ids]
            values = self._layout.values(np.frombuffer(reply.body, np.uint8), [len(index) for index in indices])
            for table, rows, index, some in zip(tables, found, indices, values, strict=True):
                record = np.dtype((np.void, table.row_nbytes))  # scattered faster than rows of a 2-d array
                rows.reshape(-1).view(record).put(index, some.reshape(-1).view(record), mode="clip")
        return found


_NONE: Ids = np.empty(0, np.int64)
