"""The lives of the roles of a job as a state machine: what is lost, what begins again, when to give up.

Events in: a life was placed on a Dask worker, started, left, returned, failed; a Dask worker is lost, or closes. What
follows is asked for: which roles wait for a Dask worker to begin again on, and what the job fails of. There is no Dask
in it.

::

    placed ──▶ started ──▶ returned            it has ended
       │          │ ├────▶ failed              it has ended, and the job fails of it
       └──────────┴─┴────▶ lost ──▶ placed     a new life, of a worker or the evaluator
                            └─────▶ failed     of a ps or the chief, or too many times within an hour
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from psflow.ps_runtime.errors import LifeOverError, RoleFailedError, RoleLostError, StoppedError, TransportError
from psflow.ps_runtime.specs.roles import Role, RoleId

__all__ = ["Loss", "Supervisor"]

BEGIN_AGAIN = (Role.WORKER, Role.EVALUATOR)
"""The roles of which a new life goes on where the lost one was."""
HOUR_SECS = 3600.0


class Loss(NamedTuple):
    """A life that was lost, and how."""

    incarnation: int
    error: RoleLostError
    in_order: bool = False
    """Its Dask worker was closed, and waited for it; it gives back what it has."""


@dataclass(slots=True)
class _Life:
    """A life of a role, on one Dask worker."""

    incarnation: int
    slot: str
    placed_at: float
    has_started: bool = False
    has_left: bool = False
    is_leaving: bool = False


@dataclass(slots=True)
class _State:
    """What is known of a role; it waits to be placed if it has neither a life nor an end."""

    num_placed: int = 0
    life: _Life | None = None
    report: dict[str, Any] | None = None
    error: BaseException | None = None
    losses: list[Loss] = field(default_factory=list)
    lost_at: deque[float] = field(default_factory=deque)
    """Within the last hour."""
    is_let_go: bool = False
    """It was lost when nobody needed it any more."""

    @property
    def is_waiting(self) -> bool:
        return self.num_placed > 0 and self.life is None and not self.has_ended

    @property
    def has_ended(self) -> bool:
        return self.report is not None or self.error is not None or self.is_let_go


class Supervisor:
    """The lives of all roles of one attempt.

    Parameters
    ----------
    roles : iterable of RoleId
        Of the job.
    first_incarnation : int
        Of the first life of each role; higher than those of earlier attempts.
    max_restarts : int
        New lives of one role within an hour, from 0, after those that did not leave in order.
    clock : callable, optional
        Returns seconds that never go back.

    Notes
    -----
    Not thread-safe. Events of a life that is over, or not yet placed, do nothing.
    """

    def __init__(
        self,
        roles: Iterable[RoleId],
        first_incarnation: int,
        max_restarts: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states = {role: _State() for role in roles}
        self._first_incarnation = first_incarnation
        self._max_restarts = max_restarts
        self._clock = clock

    # Events

    def place(self, role: RoleId, slot: str) -> int:
        """Take note that a life of `role` begins on the Dask worker at `slot`; return its incarnation."""
        state = self._states[role]
        incarnation = self._first_incarnation + state.num_placed
        state.num_placed += 1
        state.life = _Life(incarnation, slot, self._clock())
        return incarnation

    def start(self, role: RoleId, incarnation: int) -> None:
        """Take note that a life has started; if it does so again, Dask has begun a lost one anew, which counts not."""
        life = self._life(role, incarnation)
        if life is not None and life.has_started and not self.has_ended(role):
            self._lose(role, "it was lost, and Dask started it again")
        elif life is not None:
            life.has_started = True

    def leave(self, role: RoleId, incarnation: int) -> None:
        """Take note that a life runs no longer; `finish` or `fail` says how it has ended."""
        if (life := self._life(role, incarnation)) is not None:
            life.has_left = True

    def depart(self, role: RoleId, incarnation: int) -> None:
        """Take note that a life is about to leave in order, because its Dask worker closes."""
        if (life := self._life(role, incarnation)) is not None:
            life.is_leaving = True

    def finish(self, role: RoleId, incarnation: int, report: dict[str, Any]) -> None:
        """Take note that a life came to its end, and what it says of itself."""
        if self._life(role, incarnation) is None or self.has_ended(role):
            return
        self._states[role].report = report
        if role.role is Role.CHIEF:
            for other, state in self._states.items():
                state.is_let_go |= other.role is Role.WORKER and state.is_waiting

    def fail(self, role: RoleId, incarnation: int, error: BaseException) -> None:
        """Take note that a life ended with an error.

        It counts as lost if the others go on without it, or if it leaves in order. So does a later life that cannot
        reach the ps.
        """
        life = self._life(role, incarnation)
        if life is None or self.has_ended(role):
            return
        is_left = life.is_leaving and isinstance(error, StoppedError)
        is_cut_off = bool(self._states[role].losses) and isinstance(error, TransportError)
        if isinstance(error, LifeOverError) or is_left or is_cut_off:
            self._lose(role, str(error))
        else:
            self._states[role].error = error

    def lose_slots(self, addresses: Collection[str], *, in_order: bool = False) -> None:
        """Take note that Dask workers are gone, and the lives on them; `in_order` if somebody has retired them."""
        for role, state in self._states.items():
            life = state.life
            if life is not None and life.slot in addresses and not state.has_ended:
                life.is_leaving |= in_order
                self._lose(role, f"its Dask worker {life.slot} was {'closed' if life.is_leaving else 'lost'}")

    def lose_late(self, timeout_secs: float) -> None:
        """Take note of the time: a later life that has not started so long after it was placed is lost."""
        for role, state in self._states.items():
            life = state.life
            if life is None or life.has_started or not state.losses or state.has_ended:
                continue
            if self._clock() - life.placed_at >= timeout_secs:
                self._lose(role, f"it did not start on {life.slot} within {timeout_secs:g} s")

    # What follows

    def waiting(self) -> list[RoleId]:
        """Return the roles that are to begin a new life on whatever Dask worker is free."""
        return [role for role, state in self._states.items() if state.is_waiting]

    def losses(self, role: RoleId) -> list[Loss]:
        """Return the lives of a role that were lost, one after the other."""
        return self._states[role].losses

    def is_current(self, role: RoleId, incarnation: int) -> bool:
        """Return whether a life is the present one of its role."""
        return self._life(role, incarnation) is not None

    def has_started(self, role: RoleId) -> bool:
        """Return whether any life of a role has started."""
        state = self._states[role]
        return bool(state.losses) or (state.life is not None and state.life.has_started)

    def has_ended(self, role: RoleId) -> bool:
        """Return whether a role has ended for good, well or not."""
        return self._states[role].has_ended

    def all_ended(self) -> bool:
        """Return whether all roles have ended that were ever placed."""
        return all(state.has_ended for state in self._states.values() if state.num_placed)

    def error(self, role: RoleId) -> BaseException | None:
        """Return what a role has failed with."""
        return self._states[role].error

    def errors(self) -> list[tuple[RoleId, BaseException]]:
        """Return what roles have failed with, in the order of the roles."""
        return [(role, state.error) for role, state in self._states.items() if state.error is not None]

    def reports(self) -> dict[RoleId, dict[str, Any]]:
        """Return what roles that came to their end say of themselves."""
        return {role: state.report for role, state in self._states.items() if state.report is not None}

    @property
    def is_trained(self) -> bool:
        """Whether the chief has come to its end: no worker is needed any more."""
        return any(role.role is Role.CHIEF and state.report is not None for role, state in self._states.items())

    def slots(self) -> dict[RoleId, str]:
        """Return the Dask workers of the lives that have not ended."""
        return {r: s.life.slot for r, s in self._states.items() if s.life is not None and not s.has_ended}

    def running(self) -> list[RoleId]:
        """Return the roles whose present life has started and runs still, ended or not as far as is told."""
        lives = {role: state.life for role, state in self._states.items()}
        return [role for role, life in lives.items() if life is not None and life.has_started and not life.has_left]

    # Inside

    def _life(self, role: RoleId, incarnation: int) -> _Life | None:
        """Return a life, if it is the present one of its role."""
        life = self._states[role].life
        return life if life is not None and life.incarnation == incarnation else None

    def _lose(self, role: RoleId, reason: str) -> None:
        state = self._states[role]
        assert state.life is not None
        in_order = state.life.is_leaving
        loss = RoleLostError(str(role), reason)
        state.losses.append(Loss(state.life.incarnation, loss, in_order))
        state.life = None
        now = self._clock()
        if not in_order:
            state.lost_at.append(now)
        while state.lost_at and now - state.lost_at[0] >= HOUR_SECS:
            state.lost_at.popleft()
        if role.role not in BEGIN_AGAIN:
            state.error = loss
        elif role.role is Role.WORKER and self.is_trained:
            state.is_let_go = True
        elif len(state.lost_at) > self._max_restarts:
            state.error = self._too_many(role, reason)

    def _too_many(self, role: RoleId, reason: str) -> RoleFailedError:
        if self._max_restarts == 0:
            return RoleLostError(str(role), reason)
        times = len(self._states[role].lost_at)
        allowed = f"cluster.max_restarts allows {self._max_restarts}"
        return RoleFailedError(str(role), f"{reason}; it was lost {times} times within an hour, {allowed}")
