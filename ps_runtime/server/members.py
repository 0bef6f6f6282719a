"""Who trains: the living members of a job, and what is known of earlier lives."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from psflow.ps_runtime.protocol.message import Life
from psflow.ps_runtime.server.instructions import Refusal
from psflow.ps_runtime.server.updates import BatchTicket

__all__ = ["Member", "Members"]


@dataclass(slots=True)
class Member:
    """A living member."""

    incarnation: int
    sequence: int = 0
    """Of its last push that was taken in."""
    tickets: deque[BatchTicket] = field(default_factory=deque)
    num_known: int = 0
    """Tickets that it says it holds; a further one may be on its way."""
    log_told: int = 0
    """Where the log ended that came with its last ticket."""


class Members:
    """The living, and the sequences of all lives since the last cut: the dedupe table."""

    def __init__(self) -> None:
        self.living: dict[int, Member] = {}
        self.gone: set[int] = set()
        """Members whose last life is over."""
        self._past: dict[Life, int] = {}
        self._oldest: dict[int, int] = {}

    def get(self, member: int, incarnation: int) -> Member:
        """Return a living member; a Refusal if this life of it is none."""
        life = self.living.get(member)
        if life is None or life.incarnation != incarnation:
            raise Refusal("incarnation", f"incarnation {incarnation} of replica {member} is not a member of this job")
        return life

    def must_not_be_over(self, member: int, incarnation: int) -> None:
        """Refuse a life of which a later one has been seen."""
        known = self.living.get(member)
        oldest = max(self._oldest.get(member, 0), known.incarnation if known else 0)
        if incarnation < oldest:
            raise Refusal(
                "incarnation", f"incarnation {incarnation} of replica {member} is over; {oldest} or later may join"
            )

    def join(self, member: int, incarnation: int) -> Member:
        """Take in a new life."""
        life = self.living[member] = Member(incarnation, self._past.get((member, incarnation), 0))
        self.gone.discard(member)
        return life

    def bury(self, member: int) -> None:
        """End the present life of a member."""
        life = self.living.pop(member)
        self._past[(member, life.incarnation)] = life.sequence
        self._oldest[member] = life.incarnation + 1
        self.gone.add(member)

    def restore(self, lives: Mapping[Life, int]) -> None:
        """Take up the dedupe table of a cut; who has come already stays, unless its life is over there."""
        self._past = dict(lives)
        for member, incarnation in lives:
            self._oldest[member] = max(incarnation, self._oldest.get(member, 0))
        for member, life in list(self.living.items()):
            if life.incarnation < self._oldest.get(member, 0):
                del self.living[member]
            life.sequence = lives.get((member, life.incarnation), 0)

    def lives(self) -> dict[Life, int]:
        """Return the dedupe table: the sequence of the last push of each life."""
        return self._past | {(m, life.incarnation): life.sequence for m, life in self.living.items()}

    def forget_past(self) -> None:
        """Forget the lives that no push can be held of any more, but for the last one of each member."""
        newest = dict(sorted(self._past)) | {m: life.incarnation for m, life in self.living.items()}
        self._past = {life: sequence for life, sequence in self._past.items() if newest[life[0]] == life[1]}
