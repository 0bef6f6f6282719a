"""Holds the state of each role of a job: its present incarnation, how it ended, and the lost ones."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from psflow.ps_runtime.errors import BrokenPeerError, RoleFailedError, RoleLostError, StoppedError, TransportError
from psflow.ps_runtime.specs.roles import RoleId

HOUR_SECS = 3600.0
NOT_NEEDED = "it was lost, and the job was over before it had restarted"


class Loss(NamedTuple):
    """An incarnation that has ended though its role continues, and why."""

    incarnation: int
    error: RoleLostError
    is_rollback: bool
    """Another role was lost, so training rolls back and ends this one."""
    rolls_back: bool
    """Training rolls back to the last checkpoint because of it."""
    in_order: bool
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
    has_started: bool = False
    is_listening: bool = False
    has_stepped: bool = False
    has_left: bool = False
    has_outcome: bool = False
    is_shutting_down: bool = False
    hang: str | None = None
    """How it hangs, if its Dask worker is ended for that."""
    rolled_back_at: float | None = None

    def loss_reason(self, known: str | None) -> str:
        """Return why the incarnation is lost with its Dask worker; a `known` reason comes first."""
        if self.is_shutting_down:
            return self.hang or f"its Dask worker {self.slot} was closed"
        return self.hang or known or f"its Dask worker {self.slot} was lost"


@dataclass(slots=True)
class RoleState:
    """The state of a role; without an incarnation or an outcome it waits to be placed."""

    num_placed: int = 0
    current: RoleIncarnation | None = None
    report: dict[str, Any] | None = None
    error: BaseException | None = None
    losses: list[Loss] = field(default_factory=list)
    lost_at: deque[float] = field(default_factory=deque)
    """Within the last hour."""
    faults: set[str] = field(default_factory=set)
    """Kinds of the faults after which it restarted."""
    abandoned: str | None = None
    """Why the job no longer waits for it, though it has not ended."""
    was_unplaced: bool = False
    """It had no Dask worker when the others began."""

    @property
    def is_waiting(self) -> bool:
        """Whether the role is to be placed, late or again."""
        return (self.num_placed > 0 or self.was_unplaced) and self.current is None and not self.has_ended

    @property
    def is_later(self) -> bool:
        """Whether the others can do without it: its present incarnation is not one that the job began with."""
        return bool(self.losses) or self.was_unplaced

    @property
    def is_rolled_back(self) -> bool:
        """Whether its incarnation is over because training rolls back."""
        return self.current is not None and self.current.rolled_back_at is not None

    @property
    def has_started(self) -> bool:
        """Whether any of its incarnations has started."""
        return bool(self.losses) or (self.current is not None and self.current.has_started)

    @property
    def can_be_reached(self) -> bool:
        """Whether this is a ps that listens and continues."""
        return self.current is not None and self.current.is_listening and not self.is_rolled_back

    @property
    def serves(self) -> bool:
        """Whether this is a ps that can be reached and has not ended."""
        return self.can_be_reached and not self.has_ended

    @property
    def is_to_end(self) -> bool:
        """Whether its incarnation still runs, though the job no longer waits for its result."""
        is_running = self.current is not None and not self.current.has_left
        return is_running and (self.is_rolled_back or self.abandoned is not None)

    @property
    def has_ended(self) -> bool:
        """Whether the role has ended for good, with or without an error."""
        return self.report is not None or self.error is not None or self.abandoned is not None

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

    def report_of(self, role: RoleId) -> dict[str, Any]:
        """Return the report of a role that ended without a failure; StoppedError if it was abandoned before."""
        if self.report is not None:
            return self.report
        assert self.abandoned is not None
        raise StoppedError(str(role), self.abandoned)


def too_many_losses(role: RoleId, reason: str, num_losses: int, max_restarts: int) -> RoleFailedError:
    """Return the error of a job that allows no further incarnation of a role."""
    if max_restarts == 0:
        return RoleLostError(str(role), reason)
    allowed = f"cluster.max_restarts allows {max_restarts}"
    return RoleFailedError(str(role), f"{reason}; it was lost {num_losses} times within an hour, {allowed}")
