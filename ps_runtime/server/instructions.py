"""What the job tells those around it: where it stands, what is to be done, what it refuses. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from psflow.ps_runtime.protocol.cut import Cut
from psflow.ps_runtime.protocol.decisions import Entry
from psflow.ps_runtime.specs.input import RecordRange

__all__ = ["CutReady", "Decided", "Expired", "Granted", "Instruction", "JobFinished", "NoTicket", "Phase", "Refusal"]


class Phase(StrEnum):
    """Where a job stands."""

    OPENING = "waiting for the chief to initialise or restore the variables"
    OPENING_CUT_REQUESTED = "waiting for the chief to initialise or restore the variables; a cut comes next"
    TRAINING = "training"
    CUT_REQUESTED = "waiting for the tickets given to be used, for a cut"
    CUT_DUE = "waiting for the saver to await the cut that is due"
    CUT_ANNOUNCED = "waiting for the saver to have the cut copied"
    CUT_COPIED = "waiting for the saver to resume after a cut"
    FINAL_CUT_ANNOUNCED = "waiting for the saver to have the final cut copied"
    FINAL_CUT_COPIED = "waiting for the saver to resume after the final cut"
    DRAINED = "waiting for the chief to commit the final checkpoint"
    FINISHED = "finished"


class Refusal(Exception):  # noqa: N818  (an answer to a peer, not an error of ours)
    """A request that is refused; nothing has changed. `code` is for programs, `reason` for people."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Decided(NamedTuple):
    """Have the shards do what was decided about pushes; the first entry has place `start` in the log."""

    start: int
    entries: Sequence[Entry]


class Granted(NamedTuple):
    """Give `replica` a ticket for the batch `records`.

    `log` are the entries that another shard may not have heard of, empty where there is no other shard; `staleness` is
    that of the replica's last push.
    """

    replica: int
    global_step: int
    records: RecordRange
    staleness: int
    log: bytes


class NoTicket(NamedTuple):
    """Tell `replica` to use the ticket it has, because there is no further one now; `log` is as in `Granted`."""

    replica: int
    global_step: int
    log: bytes


class JobFinished(NamedTuple):
    """Tell `replica` that no more tickets will come."""

    replica: int
    global_step: int


class Expired(NamedTuple):
    """A life of `replica` is over: others waited, and it made no push of the batch `records` within `secs`.

    `num_lives` says how many lives have ended so at this batch.
    """

    replica: int
    incarnation: int
    records: RecordRange
    secs: float
    num_lives: int


class CutReady(NamedTuple):
    """Tell the saver to have every shard copied now; after a final cut nothing more will come."""

    cut: Cut
    is_final: bool


Instruction = Decided | Granted | NoTicket | JobFinished | CutReady
