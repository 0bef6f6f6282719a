"""Rows of sparse tables, pulled from the ps that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_runtime.client.link import Links
from ps_runtime.client.parameters import REPLY_TIMEOUT_SECS
from ps_runtime.specs.tables import TableSpec
from ps_runtime.transport.message import Kind, Message
from ps_runtime.transport.row_payloads import RowLayout

__all__ = ["RowClient", "on_shard"]

Ids = NDArray[np.int64]


def on_shard(ids: Ids, shard: int, num_shards: int) -> Any:
    """Return which of `ids` lie on a shard, as an index for them and their rows."""
    return slice(None) if num_shards == 1 else np.flatnonzero(ids % num_shards == shard)


class RowClient:
    """Pulls rows; some of them ahead of time. A `RowSource` for calls of model_fn.

    Parameters
    ----------
    links : Links
    tables : sequence of TableSpec
        All of the model.

    Notes
    -----
    Not thread-safe. The ids of a pull are those of a shard in the order in which they are given.
    """

    def __init__(self, links: Links, tables: Sequence[TableSpec]) -> None:
        self._links = links
        self._layout = RowLayout(tuple(tables))
        self._known: dict[str, tuple[Ids, NDArray[Any]]] = {}
        self._coming: dict[str, tuple[Ids, NDArray[Any]]] = {}
        self._asked: tuple[list[Ids], list[list[Any]]] | None = None
        self.num_pulled = 0

    def rows(self, spec: TableSpec, ids: Ids) -> NDArray[Any]:
        """Return the rows of ``(n,)`` unique `ids`, ``(n, dim)``: pulled ahead if just these were, else now. Blocks."""
        known = self._known.get(spec.name)
        if known is not None and known[0] is ids:
            return known[1]
        self._take_what_was_asked()
        wanted = {table.name: ids if table.name == spec.name else ids[:0] for table in self._layout.tables}
        self._send(wanted, b"")
        return self._receive()[spec.name]

    def start(self, wanted: Mapping[str, Ids], log: bytes) -> None:
        """Ask for rows that will be wanted next; nothing else may be asked of the ps before `finish`."""
        self._send({table.name: wanted.get(table.name, _NONE) for table in self._layout.tables}, log)

    def finish(self) -> None:
        """Wait for the rows that `start` asked for: `rows` has them from now on. Blocks."""
        self._take_what_was_asked()
        self._known, self._coming = self._coming, {}

    def _take_what_was_asked(self) -> None:
        if self._asked is not None:
            ids = dict(zip((table.name for table in self._layout.tables), self._asked[0], strict=True))
            self._coming = {name: (ids[name], rows) for name, rows in self._receive().items()}

    def _send(self, wanted: Mapping[str, Ids], log: bytes) -> None:
        ids = list(wanted.values())
        num_shards = len(self._links)
        indices = [[on_shard(some, shard, num_shards) for some in ids] for shard in range(num_shards)]
        self._asked = (ids, indices)
        for shard, link in enumerate(self._links):
            mine = [some[index] for some, index in zip(ids, indices[shard], strict=True)]
            nbytes = self._layout.ids_nbytes([len(some) for some in mine])
            told = log if shard else b""
            body = link.connection.outbox(nbytes + len(told)) or memoryview(bytearray(nbytes + len(told)))
            self._layout.write_ids(np.frombuffer(body, np.uint8), mine)
            body[nbytes:] = told
            link.send(Message(Kind.PULL_ROWS, body=body))

    def _receive(self) -> dict[str, NDArray[Any]]:
        assert self._asked is not None
        (ids, indices), self._asked = self._asked, None
        tables = self._layout.tables
        found = [np.empty((len(some), table.dim), table.dtype) for table, some in zip(tables, ids, strict=True)]
        for link, index in zip(self._links, indices, strict=True):
            reply = link.receive("rows", REPLY_TIMEOUT_SECS)
            counts = [len(some[mine]) for some, mine in zip(ids, index, strict=True)]
            values = self._layout.values(np.frombuffer(reply.body, np.uint8), counts)
            for rows, mine, some in zip(found, index, values, strict=True):
                rows[mine] = some
            self.num_pulled += sum(counts)
        return {table.name: rows for table, rows in zip(tables, found, strict=True)}


_NONE: Ids = np.empty(0, np.int64)
