"""What a job decides about pushes, told to every shard in the same words and the same order.

ps-0 decides, and its shard hears of it at once. The others hear of it from the replicas: each grant carries the end of
the list, and each pull from another ps hands it on. So every shard makes the same updates in the same order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import NO_REPLICA

__all__ = ["Decision", "Entry", "EntryLog", "decode_entries"]

_START = struct.Struct("<Q")
_ENTRY = struct.Struct("<IIIQ")


class Decision(IntEnum):
    """What is to be done with a push."""

    APPLY = 1
    """Make it an update."""
    SUM = 2
    """Add it to the sum of the round."""
    CLOSE = 3
    """Make the mean of the round's sum an update; `sequence` is the number of gradients in it."""
    DROP = 4
    """Forget it."""


class Entry(NamedTuple):
    """One decision, about push `sequence` of a life of `replica`."""

    decision: Decision
    replica: int
    incarnation: int
    sequence: int

    @classmethod
    def close(cls, num_gradients: int) -> Entry:
        """Return the entry that closes a round of `num_gradients`."""
        return cls(Decision.CLOSE, NO_REPLICA, 0, num_gradients)

    @property
    def makes_update(self) -> bool:
        """Whether the version of every shard goes up by one."""
        return self.decision is Decision.APPLY or self.decision is Decision.CLOSE


@dataclass
class EntryLog:
    """The entries that some shard may not have heard of yet.

    `start` is the place of the first of them among all entries since the job began.
    """

    start: int = 0

    def __post_init__(self) -> None:
        self._entries: list[Entry] = []
        self._encoded = bytearray()

    @property
    def end(self) -> int:
        """The place after the last entry."""
        return self.start + len(self._entries)

    @property
    def entries(self) -> Sequence[Entry]:
        """The entries from `start` on."""
        return self._entries

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add new entries."""
        for entry in entries:
            self._entries.append(entry)
            self._encoded += _ENTRY.pack(*entry)

    def forget(self, known: int) -> None:
        """Forget the entries before place `known`, which every shard has heard of."""
        if known > self.start:
            del self._entries[: known - self.start]
            del self._encoded[: (known - self.start) * _ENTRY.size]
            self.start = known

    def encode(self) -> bytes:
        """Return the log as bytes."""
        return _START.pack(self.start) + self._encoded


def decode_entries(data: bytes | bytearray | memoryview, known: int = 0) -> tuple[int, list[Entry]]:
    """Read what `EntryLog.encode` wrote, but for the entries before place `known`; nothing at all stands for none.

    Raises
    ------
    ProtocolError
        If these are no entries.
    """
    if not data:
        return 0, []
    try:
        (start,) = _START.unpack_from(data)
        num_skipped = min(max(0, known - start), (len(data) - _START.size) // _ENTRY.size)
        rest = memoryview(data)[_START.size + num_skipped * _ENTRY.size :]
        return start + num_skipped, [Entry(Decision(d), m, i, s) for d, m, i, s in _ENTRY.iter_unpack(rest)]
    except (struct.error, ValueError) as error:
        raise ProtocolError("peer", f"not entries of a log: {error}") from error
