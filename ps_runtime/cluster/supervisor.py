"""The lives of the roles of a job as a state machine: what is lost, what begins again, when to give up.

Events in: a life was placed on a Dask worker, started, listens, left, returned, failed; a Dask worker is lost, or
closes. What follows is asked for: which lives are to end, which roles are to be placed on a Dask worker next, and what
the job fails of. There is no Dask in it.

::

    placed ──▶ started ──▶ returned            it has ended
       │          │ ├────▶ failed              it has ended, and the job fails of it
       │          │ └────▶ recalled ──┐        a ps or the chief is lost: training goes back
       └──────────┴─────▶ lost ───────┴──▶ placed     a new life
                            └────────────▶ failed     too many times within an hour

A ps has values, and the chief the order of cuts, that nobody else has. Once one of them is lost, all roles that train
are recalled, and begin again from the last checkpoint: the ps first, the others once every ps listens. A checkpoint is
written by the ps and the chief together, so the new ones begin only after the old ones have ended.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from psflow.ps_runtime.errors import LifeOverError, RoleFailedError, RoleLostError, StoppedError, TransportError
from psflow.ps_runtime.specs.roles import Role, RoleId

__all__ = ["SAVING", "Loss", "Supervisor"]

SAVING = (Role.PS, Role.CHIEF)
"""The roles that make checkpoints: no training goes on without one of them."""
HOUR_SECS = 3600.0


class Loss(NamedTuple):
    """A life that is over though its role goes on, and why."""

    incarnation: int
    error: RoleLostError
    is_recall: bool
    """It ended because another role was lost."""
    in_order: bool
    """Its Dask worker was closed, and waited for it; it gives back what it has."""


@dataclass(slots=True)
class _Life:
    """A life of a role, on one Dask worker."""

    incarnation: int
    slot: str
    placed_at: float
    has_started: bool = False
    is_listening: bool = False
    has_left: bool = False
    has_outcome: bool = False
    is_leaving: bool = False
    recalled_at: float | None = None

    @property
    def can_be_reached(self) -> bool:
        return self.is_listening and self.recalled_at is None


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
    def is_recalled(self) -> bool:
        return self.life is not None and self.life.recalled_at is not None

    @property
    def is_to_end(self) -> bool:
        return self.life is not None and self.life.recalled_at is not None and not self.life.has_left

    @property
    def has_ended(self) -> bool:
        return self.report is not None or self.error is not None or self.is_let_go


class Supervisor:
    """The lives of all roles of one attempt.

    Parameters
    ----------
    roles : iterable of RoleId
        Of the job, in the order in which they are to begin.
    first_incarnation : int
        Of the first life of each role; higher than those of earlier attempts.
    max_restarts : int
        New lives of one role within an hour, from 0. Lives that were recalled, left in order or hung do not count.
    goes_back : bool
        Whether there are checkpoints to go back to; else a lost ps or chief ends the job.
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
        *,
        goes_back: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states = {role: _State() for role in roles}
        self._first_incarnation = first_incarnation
        self._max_restarts = max_restarts
        self._goes_back = goes_back
        self._clock = clock

    # Events

    def place(self, role: RoleId, slot: str) -> int:
        """Take note that a life of `role` begins on the Dask worker at `slot`; return its incarnation."""
        state = self._states[role]
        incarnation = self._first_incarnation + state.num_placed
        state.num_placed += 1
        state.life = _Life(incarnation, slot, self._clock())
        if role.role is not Role.PS and not self._all_listen():
            state.life.recalled_at = self._clock()  # a ps was lost meanwhile
        return incarnation

    def start(self, role: RoleId, incarnation: int) -> None:
        """Take note that a life has started; if it does so again, Dask has begun a lost one anew, which counts not."""
        life = self._life(role, incarnation)
        if life is not None and life.has_started and not self.has_ended(role):
            self._lose(role, "it was lost, and Dask started it again")
        elif life is not None:
            life.has_started = True

    def listen(self, role: RoleId, incarnation: int) -> None:
        """Take note that a ps can be reached."""
        if (life := self._life(role, incarnation)) is not None:
            life.is_listening = True

    def leave(self, role: RoleId, incarnation: int) -> None:
        """Take note that a life runs no longer; `finish` or `fail` says how it has ended."""
        if (life := self._life(role, incarnation)) is not None:
            life.has_left = True
            # the chief may have come to the end of training: its outcome says so
            if life.recalled_at is not None and (role.role is not Role.CHIEF or life.has_outcome):
                self._states[role].life = None

    def depart(self, role: RoleId, incarnation: int) -> None:
        """Take note that a life is about to leave in order, because its Dask worker closes."""
        if (life := self._life(role, incarnation)) is not None:
            life.is_leaving = True

    def finish(self, role: RoleId, incarnation: int, report: dict[str, Any]) -> None:
        """Take note that a life came to its end, and what it says of itself."""
        state = self._states[role]
        if self._life(role, incarnation) is None or self.has_ended(role):
            return
        if state.is_recalled and role.role is not Role.CHIEF:
            return
        state.report = report
        if role.role is Role.CHIEF:
            for other, state in self._states.items():
                state.is_let_go |= other.role is not Role.EVALUATOR and (state.is_waiting or state.is_recalled)

    def fail(self, role: RoleId, incarnation: int, error: BaseException) -> None:
        """Take note that a life ended with an error.

        It counts as lost if the others go on without it, or if it leaves in order. So does a life that cannot reach the
        ps, if it is a later one, or nobody needs it any more.
        """
        state = self._states[role]
        life = self._life(role, incarnation)
        if life is None or self.has_ended(role):
            return
        is_left = life.is_leaving and isinstance(error, StoppedError)
        is_late = bool(state.losses) or (role.role is Role.WORKER and self.is_trained)
        is_cut_off = is_late and isinstance(error, TransportError)
        if life.recalled_at is not None:
            life.has_outcome = True
            state.life = life if life.has_started and not life.has_left else None  # who has started leaves
        elif isinstance(error, LifeOverError) or is_left or is_cut_off:
            self._lose(role, str(error), counts=not isinstance(error, LifeOverError))
        else:
            state.error = error

    def lose_slots(self, addresses: Collection[str], *, in_order: bool = False) -> None:
        """Take note that Dask workers are gone, and the lives on them; `in_order` if somebody has retired them."""
        for role, state in self._states.items():
            life = state.life
            if life is not None and life.slot in addresses and state.has_ended:
                life.has_left = True  # without a word; a later recall must find that there was a life
                state.life = None if state.is_recalled else life
            elif life is not None and life.slot in addresses:
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

    def to_end(self) -> list[RoleId]:
        """Return the roles of which a life is over, or is to end: nobody waits for its result any more."""
        return [role for role, state in self._states.items() if state.is_waiting or state.is_to_end]

    def waiting(self) -> list[RoleId]:
        """Return the roles that are to begin a new life, on whatever Dask worker is free."""
        return [role for role, state in self._states.items() if state.is_waiting]

    def due(self) -> list[RoleId]:
        """Return those of `waiting` that may begin now, in this order."""
        saving = [state for role, state in self._states.items() if role.role in SAVING]
        if any(state.is_recalled and not state.has_ended for state in saving):
            return []
        if servers := [role for role in self.waiting() if role.role is Role.PS]:
            return servers
        return self.waiting() if self._all_listen() else []

    def late_to_leave(self, timeout_secs: float) -> list[RoleId]:
        """Return the ps and the chief if they were recalled so long ago, and have not left."""
        saving = {role: state for role, state in self._states.items() if role.role in SAVING}
        lives = {role: state.life for role, state in saving.items() if not state.has_ended}
        return [
            role
            for role, life in lives.items()
            if life is not None and life.recalled_at is not None and self._clock() - life.recalled_at >= timeout_secs
        ]

    def missing_workers(self) -> list[tuple[RoleId, int]]:
        """Return the workers without a life that trains, while the others do, each with its last life that is over."""
        if not self.is_training or not self._all_listen():
            return []
        states = [(role, state) for role, state in self._states.items() if role.role is Role.WORKER and state.losses]
        return [(role, state.losses[-1].incarnation) for role, state in states if state.is_waiting or state.is_recalled]

    def losses(self, role: RoleId) -> list[Loss]:
        """Return the lives of a role that were lost or recalled, one after the other."""
        return self._states[role].losses

    def all_started(self) -> bool:
        """Return whether each life that was placed has started: Dask knows then which slots are taken."""
        return all(state.life is None or state.life.has_started for state in self._states.values())

    def is_current(self, role: RoleId, incarnation: int) -> bool:
        """Return whether a life is the present one of its role."""
        return self._life(role, incarnation) is not None

    def has_started(self, role: RoleId) -> bool:
        """Return whether any life of a role has started."""
        state = self._states[role]
        return bool(state.losses) or (state.life is not None and state.life.has_started)

    def is_listening(self, role: RoleId) -> bool:
        """Return whether the present life of a ps can be reached."""
        life = self._states[role].life
        return life is not None and life.is_listening

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
        """Whether the chief has come to its end: no other role that trains is needed any more."""
        return any(role.role is Role.CHIEF and state.report is not None for role, state in self._states.items())

    @property
    def is_training(self) -> bool:
        """Whether the ps and the chief are there, or begin on Dask workers that they have."""
        return not any(state.is_waiting for role, state in self._states.items() if role.role in SAVING)

    def slots(self) -> dict[RoleId, str]:
        """Return the Dask workers of the lives that have not ended."""
        lives = {role: state.life for role, state in self._states.items() if not state.has_ended}
        return {role: life.slot for role, life in lives.items() if life is not None}

    def busy_slots(self) -> list[str]:
        """Return the Dask workers of lives that were recalled and have not left, one for each."""
        lives = [state.life for state in self._states.values()]
        return [life.slot for life in lives if life is not None and life.recalled_at is not None]

    def running(self) -> list[RoleId]:
        """Return the roles whose present life has started and runs still, ended or not as far as is told."""
        lives = {role: state.life for role, state in self._states.items()}
        return [role for role, life in lives.items() if life is not None and life.has_started and not life.has_left]

    # Inside

    def _life(self, role: RoleId, incarnation: int) -> _Life | None:
        """Return a life, if it is the present one of its role."""
        life = self._states[role].life
        return life if life is not None and life.incarnation == incarnation else None

    def _all_listen(self) -> bool:
        """Return whether each ps can be reached, or is needed no more."""
        servers = [state for role, state in self._states.items() if role.role is Role.PS]
        return all(state.has_ended or (state.life is not None and state.life.can_be_reached) for state in servers)

    def _lose(self, role: RoleId, reason: str, *, counts: bool = True) -> None:
        """End a life; `counts` says whether too many such ends within an hour end the job."""
        state = self._states[role]
        assert state.life is not None
        is_recalled, in_order = state.is_recalled, state.life.is_leaving
        loss = RoleLostError(str(role), reason)
        if not is_recalled:
            state.losses.append(Loss(state.life.incarnation, loss, is_recall=False, in_order=in_order))
        state.life = None
        if is_recalled:  # it was over already
            return
        now = self._clock()
        if counts and not in_order:
            state.lost_at.append(now)
        while state.lost_at and now - state.lost_at[0] >= HOUR_SECS:
            state.lost_at.popleft()
        if role.role is not Role.EVALUATOR and self.is_trained:
            state.is_let_go = True
        elif role.role in SAVING and not self._goes_back:
            state.error = loss
        elif len(state.lost_at) > self._max_restarts:
            state.error = self._too_many(role, reason)
        elif role.role in SAVING:
            self._recall(role)

    def _recall(self, lost: RoleId) -> None:
        """Have the roles that train begin again, also those that have ended: their work since the cut is lost."""
        for role, state in self._states.items():
            life = state.life
            if role.role is Role.EVALUATOR or life is None or state.error is not None or state.is_recalled:
                continue
            report, state.report = state.report, None
            reason = f"training goes back to the last checkpoint, as {lost} was lost"
            state.losses.append(
                Loss(life.incarnation, RoleLostError(str(role), reason), is_recall=True, in_order=False)
            )
            life.recalled_at = self._clock()
            has_ended = life.has_left and (role.role is not Role.CHIEF or report is not None)
            if has_ended or not life.has_started:
                state.life = None

    def _too_many(self, role: RoleId, reason: str) -> RoleFailedError:
        if self._max_restarts == 0:
            return RoleLostError(str(role), reason)
        times = len(self._states[role].lost_at)
        allowed = f"cluster.max_restarts allows {self._max_restarts}"
        return RoleFailedError(str(role), f"{reason}; it was lost {times} times within an hour, {allowed}")
