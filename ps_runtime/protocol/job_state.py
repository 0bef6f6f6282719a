"""Defines the state of a job as ps-0 sends it to roles: snapshots, decisions about pushes, progress.

ps-0 decides, and its shard applies the decision at once. The other shards receive it from the replicas: each grant
carries the end of the list, and each pull from another ps passes it on. So every shard makes the same updates in the
same order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Self

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import NO_REPLICA, Incarnation

_START = struct.Struct("<Q")
_ENTRY = struct.Struct("<IIIQ")


class Decision(IntEnum):
    """The decision about a push."""

    APPLY = 1
    """Make it an update."""
    SUM = 2
    """Add it to the sum of the round."""
    CLOSE = 3
    """Make the mean of the round's sum an update; `sequence` is the number of gradients in it."""
    DROP = 4
    """Forget it."""


class Entry(NamedTuple):
    """One decision, about push `sequence` of an incarnation of `replica`."""

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
    """The entries that some shard may not have received yet.

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
        """Drop the entries before place `known`, which every shard has received."""
        if known > self.start:
            del self._entries[: known - self.start]
            del self._encoded[: (known - self.start) * _ENTRY.size]
            self.start = known

    def encode(self) -> bytes:
        """Return the log as bytes."""
        return _START.pack(self.start) + self._encoded


def decode_entries(data: bytes | bytearray | memoryview, known: int = 0) -> tuple[int, list[Entry]]:
    """Decode a result of `EntryLog.encode`, without the entries before place `known`; empty bytes have no entries.

    Raises ProtocolError if these are not entries.
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


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The job's part of a snapshot: the step, the last push of each incarnation, and the input position. No stop flags.

    `sequences` includes incarnations that are over, so that a shard which has not received the decisions on their last
    pushes can tell these from torn ones.
    """

    step: int
    sequences: Mapping[Incarnation, int]
    input: Mapping[str, Any]
    num_examples: int
    log_start: int = 0
    log: Sequence[Entry] = ()

    def to_facts(self) -> dict[str, Any]:
        """Return the snapshot as plain data."""
        return {
            "step": self.step,
            "sequences": [[*key, sequence] for key, sequence in sorted(self.sequences.items())],
            "input": dict(self.input),
            "num_examples": self.num_examples,
            "log": [self.log_start, *(list(entry) for entry in self.log)],
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Snapshot:
        """Decode a result of `to_facts`; ValueError if it is not one."""
        try:
            sequences = {(_whole(m), _whole(i)): _whole(sequence) for m, i, sequence in facts["sequences"]}
            if not isinstance(facts["sequences"], list) or not isinstance(facts["input"], Mapping):
                raise ValueError("expected a list of sequences and the position of an input")
            start, *log = facts["log"]
            entries = [Entry(Decision(d), _whole(m), _whole(i), _whole(s)) for d, m, i, s in log]
            return cls(
                _whole(facts["step"]), sequences, facts["input"], _whole(facts["num_examples"]), _whole(start), entries
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the facts of a snapshot: {error}") from error


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a whole number >= 0, got {value!r}")
    return value


@dataclass(frozen=True, slots=True)
class JobState:
    """The state that the chief needs to continue a job."""

    is_open: bool
    is_finished: bool
    uncommitted: Snapshot | None = None

    def to_facts(self) -> dict[str, Any]:
        """Return the state as plain data."""
        snapshot = None if self.uncommitted is None else self.uncommitted.to_facts()
        return {"is_open": self.is_open, "is_finished": self.is_finished, "uncommitted": snapshot}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Decode a result of `to_facts`; ValueError if it is not one."""
        try:
            is_open, is_finished, snapshot = facts["is_open"], facts["is_finished"], facts["uncommitted"]
        except KeyError as error:
            raise ValueError(f"not the state of a job: it has no {error}") from error
        if type(is_open) is not bool or type(is_finished) is not bool:
            raise ValueError(f"not the state of a job: expected true or false, got {is_open!r} and {is_finished!r}")
        return cls(is_open, is_finished, None if snapshot is None else Snapshot.from_facts(snapshot))
