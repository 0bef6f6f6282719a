"""Defines what the job reports to the server: its phase, its instructions, its refusals. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from psflow.ps_runtime.errors import ProtocolError, UsageError
from psflow.ps_runtime.protocol.job_state import Entry, Snapshot
from psflow.ps_runtime.protocol.message import NO_REPLICA, Incarnation, Message, Purpose
from psflow.ps_runtime.specs.input import RecordRange
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.specs.wire_format import WireFormat


class Phase(StrEnum):
    """The phase of a job."""

    OPENING = "waiting for the chief to initialise or restore the variables"
    OPENING_SNAPSHOT_REQUESTED = "waiting for the chief to initialise or restore the variables; a snapshot comes next"
    TRAINING = "training"
    SNAPSHOT_REQUESTED = "waiting for the tickets given to be used, for a snapshot"
    SNAPSHOT_DUE = "waiting for the saver to await the snapshot that is due"
    SNAPSHOT_ANNOUNCED = "waiting for the saver to have the snapshot copied"
    SNAPSHOT_COPIED = "waiting for the saver to resume after a snapshot"
    FINAL_SNAPSHOT_ANNOUNCED = "waiting for the saver to have the final snapshot copied"
    FINAL_SNAPSHOT_COPIED = "waiting for the saver to resume after the final snapshot"
    DRAINED = "waiting for the chief to commit the final checkpoint"
    FINISHED = "finished"


class Refusal(Exception):  # noqa: N818  (an answer to a peer, not an error of ours)
    """A request that is refused; nothing has changed. `code` is for programs, `reason` for the user."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Decided(NamedTuple):
    """Have the shards apply decisions about pushes; the first entry has place `start` in the log."""

    start: int
    entries: Sequence[Entry]


class Granted(NamedTuple):
    """Give `replica` a ticket for the batch `records`.

    `log` holds the entries that another shard may not have, empty where there is no other shard; `staleness` is
    that of the replica's last push.
    """

    replica: int
    global_step: int
    records: RecordRange
    staleness: int
    log: bytes


class NoTicket(NamedTuple):
    """Have `replica` use the ticket it has, because there is no further one now; `log` is as in `Granted`."""

    replica: int
    global_step: int
    log: bytes


class JobFinished(NamedTuple):
    """Tell `replica` that no more tickets will come."""

    replica: int
    global_step: int


class Expired(NamedTuple):
    """An incarnation of `replica` is over: others waited, and it did not push the batch `records` within `secs`.

    `num_incarnations` says how many incarnations have ended so at this batch.
    """

    replica: int
    incarnation: int
    records: RecordRange
    secs: float
    num_incarnations: int


class SnapshotReady(NamedTuple):
    """Have the saver copy every shard now; after a final snapshot there are no more."""

    snapshot: Snapshot
    is_final: bool


Instruction = Decided | Granted | NoTicket | JobFinished | SnapshotReady


CHIEF = 0
"""The chief's index among the training replicas."""


def replica_name(replica: int) -> str:
    """Return the name of the role of training replica number `replica`: ``chief-0``, ``worker-0``."""
    if replica == NO_REPLICA:
        return "a role that trains nothing"
    return str(RoleId(Role.CHIEF, 0) if replica == CHIEF else RoleId(Role.WORKER, replica - 1))


@dataclass(frozen=True, slots=True)
class Peer:
    """An authenticated peer."""

    name: str
    purpose: Purpose
    replica: int
    incarnation: int
    wire: WireFormat
    """The format of the numbers that it pushes and pulls."""

    @classmethod
    def of(cls, message: Message) -> Peer:
        """Read the peer from a HELLO.

        Raises ProtocolError if fields are missing or wrong.
        """
        facts = message.json()
        try:
            name, purpose = str(facts["name"])[:80], Purpose(facts["purpose"])
            wire = WireFormat(facts["wire"]["gradients"], facts["wire"]["parameters"])
        except (KeyError, TypeError, ValueError, UsageError):
            raise ProtocolError("peer", "HELLO must give a name, a purpose and a wire format") from None
        sender = cls(name, purpose, message.replica, message.incarnation, wire)
        if sender.purpose is Purpose.TRAIN and sender.replica == NO_REPLICA:
            raise ProtocolError(sender.name, "only a training replica may train")
        return sender

    @property
    def incarnation_key(self) -> Incarnation:
        """Replica and incarnation."""
        return (self.replica, self.incarnation)

    def check(self, message: Message, digest: int) -> None:
        """Raise ProtocolError if `message` claims to be of another replica, another incarnation or another model."""
        if (message.replica, message.incarnation) != (self.replica, self.incarnation):
            raise ProtocolError(
                self.name,
                f"its message claims to come from {replica_name(message.replica)}, incarnation {message.incarnation}",
            )
        if message.digest != digest:
            raise ProtocolError(self.name, "its message has the digest of another model")

    def must_be_chief(self, message: Message) -> None:
        """Raise ProtocolError unless the peer is the chief."""
        if self.replica != CHIEF:
            raise ProtocolError(self.name, f"only the chief may send {message.kind.name}")

    def must_train(self, message: Message) -> None:
        """Raise ProtocolError unless the connection is one for training."""
        if self.purpose is not Purpose.TRAIN:
            raise ProtocolError(self.name, f"only training replicas may send {message.kind.name}")
