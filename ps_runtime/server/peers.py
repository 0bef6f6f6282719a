"""Who is at the other end of a connection, once it has said HELLO."""

from __future__ import annotations

from dataclasses import dataclass

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import NO_MEMBER, Life, Message
from psflow.ps_runtime.protocol.purpose import Purpose

__all__ = ["CHIEF", "Peer"]

CHIEF = 0
"""The chief's index among the training replicas."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A peer that was let in."""

    name: str
    purpose: Purpose
    member: int
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
            who = cls(str(facts["name"])[:80], Purpose(facts["purpose"]), message.member, message.incarnation)
        except (KeyError, ValueError):
            raise ProtocolError("peer", "HELLO must give a name and a purpose") from None
        if who.purpose is Purpose.TRAIN and who.member == NO_MEMBER:
            raise ProtocolError(who.name, "only a training replica may train")
        return who

    @property
    def life(self) -> Life:
        """Member and incarnation."""
        return (self.member, self.incarnation)

    def check(self, message: Message, digest: int) -> None:
        """Raise ProtocolError if `message` claims to be of another member, another life or another model."""
        if (message.member, message.incarnation) != (self.member, self.incarnation):
            raise ProtocolError(self.name, f"speaks as replica {message.member}, incarnation {message.incarnation}")
        if message.digest != digest:
            raise ProtocolError(self.name, "speaks of another model")

    def must_be_chief(self, message: Message) -> None:
        """Raise ProtocolError unless the peer is the chief."""
        if self.member != CHIEF:
            raise ProtocolError(self.name, f"{message.kind.name} is for the chief alone")

    def must_train(self, message: Message) -> None:
        """Raise ProtocolError unless the connection is one for training."""
        if self.purpose is not Purpose.TRAIN:
            raise ProtocolError(self.name, f"{message.kind.name} is for training replicas alone")
