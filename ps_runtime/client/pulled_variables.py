"""What a replica knows of the parameters: pulled from every ps, or read where the ps keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.client.shard_client import ShardClient, ShardClients
from psflow.ps_runtime.protocol.message import NO_BODY, Kind, Message
from psflow.ps_runtime.specs.layout import ShardLayout, piece_views
from psflow.ps_runtime.specs.variables import ModelSpec

__all__ = ["REPLY_TIMEOUT_SECS", "PulledVariables"]

REPLY_TIMEOUT_SECS = 60.0
"""For replies that no ps ever holds."""


class PulledVariables:
    """The variables of a model, one version of each shard.

    Notes
    -----
    `variables` holds views that `finish` refreshes in place. Not thread-safe.
    """

    def __init__(
        self, shards: ShardClients, model: ModelSpec, layouts: Sequence[ShardLayout], *, in_place: bool
    ) -> None:
        self._shards = shards
        self._layouts = layouts
        self._readers = [shard.connection.arena if in_place else None for shard in shards]
        self._arenas = [
            np.zeros(layout.nbytes, np.uint8) if reader is None else reader.bytes
            for layout, reader in zip(layouts, self._readers, strict=True)
        ]
        self.versions = [0] * len(shards)
        """Of each shard, when it was last pulled."""
        self._asked: dict[int, Message] = {}
        self._split: dict[str, tuple[NDArray[Any], list[tuple[slice, NDArray[Any]]]]] = {}
        self.variables: Mapping[str, NDArray[Any]] = self._find(model)

    def start(self, log: bytes, *, is_told: bool = False) -> None:
        """Ask for what must be asked for; nothing else may be asked of the ps before `finish`."""
        for index, layout in enumerate(self._layouts):
            shard = self._shards[index]
            if (is_told or index == 0) and shard.connection.arena is not None:
                continue
            is_read = shard.connection.arena is not None or not layout.nbytes  # what is asked is the version then
            ask = Message(Kind.PULL, flags=NO_BODY if is_read else 0, body=log if index else b"")
            self._asked[index] = ask
            shard.send(ask)

    def finish(self) -> None:
        """Refresh `variables`. Blocks."""
        for index, ask in self._asked.items():
            self._receive(index, ask)
        self._asked.clear()
        for index, shard in enumerate(self._shards):
            if shard.connection.arena is not None:
                self._read(index, shard)
        for whole, parts in self._split.values():
            for rows, part in parts:
                whole[rows] = part

    def _receive(self, index: int, ask: Message) -> None:
        into = None if ask.flags & NO_BODY else self._arenas[index].data
        reply = self._shards[index].receive("send the parameters", REPLY_TIMEOUT_SECS, into)
        self.versions[index] = reply.version

    def _read(self, index: int, shard: ShardClient) -> None:
        reader = shard.connection.arena
        assert reader is not None
        if self._readers[index] is not None:
            self.versions[index] = reader.version
            return
        version = reader.read(self._arenas[index])
        if version is None:  # it changed all the while: the ps itself has one version for sure
            ask = Message(Kind.PULL)
            shard.send(ask)
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
