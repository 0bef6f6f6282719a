"""What the job tells those around it: where it stands, what is to be done, what it refuses. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from psflow.ps_runtime.server.entries import Decision, Entry
from psflow.ps_runtime.server.input_position import RecordRange

__all__ = ["Cut", "CutReady", "Decided", "Finished", "Granted", "Instruction", "Life", "NoTicket", "Phase", "Refusal"]

Life = tuple[int, int]
"""A member and its incarnation."""


class Phase(StrEnum):
    """Where a job stands."""

    OPENING = "waiting for the chief to initialise or restore the variables"
    TRAINING = "training"
    CUTTING = "copying a cut; no tickets until it is made"
    DRAINED = "the last push is in and its cut is made"
    FINISHED = "finished"


class Refusal(Exception):  # noqa: N818  (an answer to a peer, not an error of ours)
    """A request that is refused; nothing has changed. `code` is for programs, `reason` for people."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Cut:
    """What a cut holds of the job: the step, who pushed what, and where the input stands. No stop flags.

    Parameters
    ----------
    step : int
    lives : mapping of Life to int
        The sequence of the last committed push of each life: the dedupe table. Lives that are over are in it too, so
        that a shard which has not heard of their last commits can tell those pushes from torn ones.
    input : mapping
        `InputPosition.to_facts`.
    num_examples : int
    log_start : int
    log : sequence of Entry
        What some shard may not have heard of yet.
    """

    step: int
    lives: Mapping[Life, int]
    input: Mapping[str, Any]
    num_examples: int
    log_start: int = 0
    log: Sequence[Entry] = ()

    def to_facts(self) -> dict[str, Any]:
        """Return the cut as plain data."""
        return {
            "step": self.step,
            "lives": [[*life, sequence] for life, sequence in sorted(self.lives.items())],
            "input": dict(self.input),
            "num_examples": self.num_examples,
            "log": [self.log_start, *(list(entry) for entry in self.log)],
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Cut:
        """Read what `to_facts` wrote; ValueError where it cannot be."""
        try:
            lives = {(_whole(m), _whole(i)): _whole(sequence) for m, i, sequence in facts["lives"]}
            if not isinstance(facts["lives"], list) or not isinstance(facts["input"], Mapping):
                raise ValueError("expected a list of lives and the position of an input")
            start, *log = facts["log"]
            entries = [Entry(Decision(d), _whole(m), _whole(i), _whole(s)) for d, m, i, s in log]
            return cls(
                _whole(facts["step"]), lives, facts["input"], _whole(facts["num_examples"]), _whole(start), entries
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"these are not the facts of a cut: {error}") from error


class Decided(NamedTuple):
    """Have the shards do what was decided about pushes; the first entry has place `start` in the log."""

    start: int
    entries: Sequence[Entry]


class Granted(NamedTuple):
    """Give `member` a ticket for the batch `records`.

    `log` are the entries that another shard may not have heard of, empty where there is no other shard; `staleness` is
    that of the member's last push.
    """

    member: int
    global_step: int
    records: RecordRange
    staleness: int
    log: bytes


class NoTicket(NamedTuple):
    """Tell `member` to use the ticket it has, because there is no further one now; `log` is as in `Granted`."""

    member: int
    global_step: int
    log: bytes


class Finished(NamedTuple):
    """Tell `member` that no more tickets will come."""

    member: int
    global_step: int


class CutReady(NamedTuple):
    """Tell the saver to have every shard copied now; after a final cut nothing more will come."""

    cut: Cut
    is_final: bool


Instruction = Decided | Granted | NoTicket | Finished | CutReady


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a whole number >= 0, got {value!r}")
    return value
