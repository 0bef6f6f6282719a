"""Who is at the other end of a connection, once it has said HELLO."""

from __future__ import annotations

from dataclasses import dataclass

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import NO_REPLICA, Life, Message
from psflow.ps_runtime.protocol.purpose import Purpose
from psflow.ps_runtime.specs.roles import Role, RoleId

__all__ = ["CHIEF", "Peer", "replica_name"]

CHIEF = 0
"""The chief's index among the training replicas."""


def replica_name(replica: int) -> str:
    """Return the role that is training replica number `replica`, as people know it: ``chief-0``, ``worker-0``."""
    if replica == NO_REPLICA:
        return "a role that trains nothing"
    return str(RoleId(Role.CHIEF, 0) if replica == CHIEF else RoleId(Role.WORKER, replica - 1))


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer that was let in."""

    name: str
    purpose: Purpose
    replica: int
    incarnation: int

    @classmethod
    def of(cls, message: Message) -> Peer:
        """Read who says HELLO.

        Raises
        ------
        ProtocolError
            If it does not say so.
        """
        facts = message.json()
        try:
            who = cls(str(facts["name"])[:80], Purpose(facts["purpose"]), message.replica, message.incarnation)
        except (KeyError, ValueError):
            raise ProtocolError("peer", "HELLO must give a name and a purpose") from None
        if who.purpose is Purpose.TRAIN and who.replica == NO_REPLICA:
            raise ProtocolError(who.name, "only a training replica may train")
        return who

    @property
    def life(self) -> Life:
        """Replica and incarnation."""
        return (self.replica, self.incarnation)

    def check(self, message: Message, digest: int) -> None:
        """Raise ProtocolError if `message` claims to be of another replica, another life or another model."""
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
            raise ProtocolError(self.name, f"{message.kind.name} is for the chief alone")

    def must_train(self, message: Message) -> None:
        """Raise ProtocolError unless the connection is one for training."""
        if self.purpose is not Purpose.TRAIN:
            raise ProtocolError(self.name, f"{message.kind.name} is for training replicas alone")
