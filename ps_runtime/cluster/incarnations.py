"""Holds the states of a role, the events that change them, and the incarnations that a role has had.

The table is the protocol: a change without an entry for a state leaves it as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from psflow.ps_runtime.errors import BrokenPeerError, RoleFailedError, RoleLostError, TransportError
from psflow.ps_runtime.specs.roles import RoleId

HOUR_SECS = 3600.0
NOT_NEEDED = "it was lost, and the job was over before it had restarted"
NOT_WANTED = "the job was scaled to fewer workers"
NEVER_BEGAN = "it had no slot before the job was over"


class RoleState(StrEnum):
    """The state of a role in its job. Its value says what the role does."""

    ABSENT = "has no slot, and the job has not begun"
    WAITING = "waits for a slot"
    PLACED = "runs, or is about to"
    RECALLED = "is to end, because training rolls back to a checkpoint, or the job is scaled to fewer workers"
    RETURNED = "has ended with a report"
    FAILED = "has failed, and the job with it"
    ABANDONED = "is not needed any more, though it has not ended"


class RoleChange(StrEnum):
    """An event that may change the state of a role. Its value says what has happened."""

    PLACE = "an incarnation is submitted to a slot"
    PLACE_EARLY = "the same, but a ps is missing: it will be cancelled"
    MISS = "the others have begun without it, because it has no slot"
    LOSE = "its incarnation is lost, and may be replaced"
    RECALL = "another role is lost, and training rolls back; or the job is scaled to fewer workers"
    LEAVE = "its recalled incarnation has ended"
    RETURN = "its incarnation has returned"
    COMPLETE = "it is the chief, and has completed training"
    FAIL = "its incarnation has failed, or may not be replaced"
    ABANDON = "training is complete, and it is not waited for"


TRANSITIONS: Mapping[RoleState, Mapping[RoleChange, RoleState]] = {
    RoleState.ABSENT: {
        RoleChange.PLACE: RoleState.PLACED,
        RoleChange.PLACE_EARLY: RoleState.RECALLED,
        RoleChange.MISS: RoleState.WAITING,
    },
    RoleState.WAITING: {
        RoleChange.PLACE: RoleState.PLACED,
        RoleChange.PLACE_EARLY: RoleState.RECALLED,
        RoleChange.FAIL: RoleState.FAILED,
        RoleChange.ABANDON: RoleState.ABANDONED,
    },
    RoleState.PLACED: {
        RoleChange.LOSE: RoleState.WAITING,
        RoleChange.RECALL: RoleState.RECALLED,
        RoleChange.RETURN: RoleState.RETURNED,
        RoleChange.COMPLETE: RoleState.RETURNED,
        RoleChange.FAIL: RoleState.FAILED,
        RoleChange.ABANDON: RoleState.ABANDONED,
    },
    RoleState.RECALLED: {
        RoleChange.LOSE: RoleState.WAITING,
        RoleChange.LEAVE: RoleState.WAITING,
        RoleChange.COMPLETE: RoleState.RETURNED,
        RoleChange.ABANDON: RoleState.ABANDONED,
    },
    RoleState.RETURNED: {
        RoleChange.RECALL: RoleState.RECALLED,
    },
    RoleState.FAILED: {},
    RoleState.ABANDONED: {},
}
"""The state that follows a change."""

ENDED = (RoleState.RETURNED, RoleState.FAILED, RoleState.ABANDONED)
"""For good, unless training rolls back."""


class TaskProgress(StrEnum):
    """How far the task of an incarnation is, as far as it has reported."""

    SUBMITTED = "submitted"
    STARTED = "started"
    LEFT = "left"


class Member(NamedTuple):
    """An incarnation of a role, on the Dask worker at `slot`."""

    role: RoleId
    incarnation: int
    slot: str


class FailureKind(StrEnum):
    """How an incarnation fails that reports nothing itself. Its value says what its Dask worker did, or was."""

    LOST = "lost"
    CLOSED = "closed"
    """In order: it waited for the role to leave."""
    OUT_OF_MEMORY = "killed by its nanny"
    HANG = "ended, since it hangs"
    """Its Dask worker is ended next, and then lost."""


class MemberFailure(NamedTuple):
    """The failure of an incarnation."""

    role: RoleId
    incarnation: int
    kind: FailureKind
    reason: str
    since: float
    """By the clock of the supervisor: for how long nothing was heard of it."""


class Loss(NamedTuple):
    """An incarnation that has ended though its role continues, and why."""

    incarnation: int
    error: RoleLostError
    at: float
    """By the clock of the supervisor."""
    is_rollback: bool = False
    """Another role was lost, so training rolls back and ends this one."""
    rolls_back: bool = False
    """Training rolls back to the last checkpoint because of it."""
    in_order: bool = False
    """A graceful shutdown: the Dask worker closed and waited for it, and it returns its unfinished work."""


class UserFault(NamedTuple):
    """An exception of user code."""

    kind: str
    """Its type, and the line that raised it: the same for the same fault."""
    sentence: str
    """Its message, with that line."""
    is_of_system: bool = False
    """Whether the system failed, not the program: a file or a network that may be available the next time."""


@dataclass(slots=True)
class RoleIncarnation:
    """An incarnation of a role, on one Dask worker."""

    incarnation: int
    slot: str
    placed_at: float
    progress: TaskProgress = TaskProgress.SUBMITTED
    is_listening: bool = False
    has_stepped: bool = False
    has_outcome: bool = False
    """It has failed after it was recalled."""
    is_shutting_down: bool = False
    hang: MemberFailure | None = None
    """How it hangs, if its Dask worker is ended for that."""
    recalled_at: float = 0.0

    def first_failure(self, failure: MemberFailure) -> MemberFailure:
        """Return why the incarnation is lost with its Dask worker: a hang or a graceful shutdown came before that."""
        if self.hang is not None:
            return self.hang
        self.is_shutting_down |= failure.kind is FailureKind.CLOSED
        return failure._replace(reason=f"its Dask worker {self.slot} was closed") if self.is_shutting_down else failure


@dataclass(slots=True)
class RoleRecord:
    """The state of a role, its present incarnation, and the losses of the earlier ones."""

    state: RoleState = RoleState.ABSENT
    num_placed: int = 0
    current: RoleIncarnation | None = None
    """None while it waits; of a role that has ended it may still run."""
    report: dict[str, Any] | None = None
    error: BaseException | None = None
    abandoned: str | None = None
    """Why the job does not wait for it."""
    losses: list[Loss] = field(default_factory=list)
    lost_at: deque[float] = field(default_factory=deque)
    """Within the last hour."""
    faults: set[str] = field(default_factory=set)
    """Kinds of the faults after which it restarted."""
    began_late: bool = False
    """It had no Dask worker when the others began."""

    def change(self, what: RoleChange) -> bool:
        """Change the state by the table; return whether it has an entry. A role that waits has no incarnation."""
        following = TRANSITIONS[self.state].get(what)
        if following is None:
            return False
        self.state = following
        if following is RoleState.WAITING:
            self.current = None
        return True

    def fail(self, error: BaseException) -> None:
        """Record what the job fails with."""
        if self.change(RoleChange.FAIL):
            self.error = error

    def abandon(self, reason: str) -> None:
        """Record why the job does not wait for it."""
        if self.change(RoleChange.ABANDON):
            self.abandoned = reason if self.num_placed else NEVER_BEGAN

    @property
    def is_later(self) -> bool:
        """Whether the others can do without it: its present incarnation is not one that the job began with."""
        return bool(self.losses) or self.began_late

    @property
    def is_begun(self) -> bool:
        """Whether its present incarnation has started."""
        return self.current is not None and self.current.progress is not TaskProgress.SUBMITTED

    @property
    def has_started(self) -> bool:
        """Whether any of its incarnations has started."""
        return bool(self.losses) or self.is_begun

    @property
    def can_be_reached(self) -> bool:
        """Whether this is a ps that listens, and is needed."""
        return self.state is RoleState.PLACED and self.current is not None and self.current.is_listening

    @property
    def has_ended(self) -> bool:
        """Whether the role has ended for good, with or without an error."""
        return self.state in ENDED

    def is_cut_off_by(self, error: BaseException) -> bool:
        """Return whether an error says that the present incarnation cannot reach the ps, though another one may."""
        if self.is_later:
            return isinstance(error, TransportError)
        return self.current is not None and self.current.has_stepped and isinstance(error, BrokenPeerError)

    def forgives(self, fault: UserFault, max_restarts: int) -> bool:
        """Return whether `fault` is the first of its kind, and the role may be lost once more within this hour."""
        return fault.kind not in self.faults and len(self.lost_at) < max_restarts

    def record_loss(self, at: float, *, counts: bool) -> None:
        """Record a loss, if it counts, and drop those of more than an hour ago."""
        if counts:
            self.lost_at.append(at)
        while self.lost_at and at - self.lost_at[0] >= HOUR_SECS:
            self.lost_at.popleft()

    def end(self) -> dict[str, Any]:
        """Return the report of a role that ended without a failure; its ``exit`` says if it was abandoned, and why."""
        return {"exit": "abandoned", "reason": self.abandoned} if self.report is None else self.report


def too_many_losses(role: RoleId, reason: str, num_losses: int, max_restarts: int) -> RoleFailedError:
    """Return the error of a job that allows no further incarnation of a role."""
    if max_restarts == 0:
        return RoleLostError(str(role), reason)
    allowed = f"cluster.max_restarts allows {max_restarts}"
    return RoleFailedError(str(role), f"{reason}; it was lost {num_losses} times within an hour, {allowed}")
