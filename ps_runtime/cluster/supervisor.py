"""The lives of the roles of a job as a state machine: what is lost, what restarts, when to give up.

Events in: a life was placed on a Dask worker, started, listens, left, returned, failed; a Dask worker is lost, or
closes. What follows is asked for: which lives are to end, which roles are to be placed on a Dask worker next, and what
the job fails of. There is no Dask in it.

::

    placed ──▶ started ──▶ returned            it has ended
       │          │ ├────▶ failed              it has ended, and the job fails of it; or, the first time, it is lost
       │          │ └────▶ recalled ──┐        training goes back to a checkpoint
       └──────────┴─────▶ lost ───────┴──▶ placed     a new life
                            └────────────▶ failed     too many times within an hour

A ps has values that nobody else has. Once one is lost, all roles that train are recalled, and restart from the last
checkpoint: the ps first, the others once every ps listens. A checkpoint is written by the ps and the chief together, so
the new ones begin only after the old ones have ended.

A lost chief restarts alone, as a worker does, and takes over: the ps hold all that it must know. Training goes back
with it only where that cannot be: no step was made yet, so the variables may have no values; a ps has come to its end;
or nobody else trains, and it would not make the same steps.

A worker, the evaluator, and the chief of a job that has made a step are lost with the first fault of a kind in the
user's code, a disk on a network that is away say, and end the job with the second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, assert_never

from psflow.ps_runtime.cluster.incarnations import (
    NOT_NEEDED,
    Loss,
    RoleIncarnation,
    RoleState,
    UserFault,
    too_many_losses,
)
from psflow.ps_runtime.cluster.lateness import SAVING, Lateness
from psflow.ps_runtime.cluster.silence import RunningIncarnation
from psflow.ps_runtime.errors import (
    IncarnationOverError,
    InterruptedLoopError,
    RoleLostError,
    StoppedError,
    TransportError,
    WaitTimeoutError,
)
from psflow.ps_runtime.specs.roles import Role, RoleId


class Supervisor:
    """The lives of all roles of one attempt.

    Notes
    -----
    Not thread-safe by itself. Events of a life that is over, or not yet placed, do nothing.
    """

    def __init__(
        self,
        roles: Iterable[RoleId],
        first_incarnation: int,
        max_restarts: int,
        *,
        rolls_back: bool = True,
        takes_over: bool = True,
        forgives: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._states = {role: RoleState() for role in roles}
        self._first_incarnation = first_incarnation
        self._max_restarts = max_restarts
        self._rolls_back = rolls_back
        self._takes_over = takes_over
        self._forgives = forgives
        self._clock = clock
        self.lateness = Lateness(self._states, clock)
        self._trained_at = 0.0
        self._has_stepped = False
        self._is_open = False
        """A step was made since training began, or went back: the variables have values, and ps-0 gives tickets."""
        self.lock = threading.RLock()

    # Events

    def place(self, role: RoleId, slot: str) -> int:
        """Record that a life of `role` begins on the Dask worker at `slot`; return its incarnation."""
        state = self._states[role]
        incarnation = self._first_incarnation + state.num_placed
        state.num_placed += 1
        state.current = RoleIncarnation(incarnation, slot, self._clock())
        if role.role is not Role.PS and not self._all_listen():
            state.current.rolled_back_at = self._clock()  # a ps was lost meanwhile
        return incarnation

    def miss(self, role: RoleId) -> None:
        """Record that the others have begun without a worker, for want of a Dask worker."""
        self._states[role].was_unplaced = True

    def start(self, role: RoleId, incarnation: int) -> None:
        """Record that a life has started; if it does so again, Dask has begun a lost one anew, which counts not."""
        current = self._current(role, incarnation)
        if current is not None and current.has_started and not self.has_ended(role):
            self._lose(role, "it was lost, and Dask started it again")
        elif current is not None:
            current.has_started = True

    def listen(self, role: RoleId, incarnation: int) -> None:
        """Record that a ps can be reached."""
        if (current := self._current(role, incarnation)) is not None:
            current.is_listening = True

    def step(self, role: RoleId, incarnation: int) -> None:
        """Record that a life has made a step."""
        if (current := self._current(role, incarnation)) is not None and current.rolled_back_at is None:
            current.has_stepped = self._is_open = self._has_stepped = True

    def leave(self, role: RoleId, incarnation: int) -> None:
        """Record that a life runs no longer; `finish` or `fail` says how it has ended."""
        if (current := self._current(role, incarnation)) is not None:
            current.has_left = True
            # the chief may have come to the end of training: its outcome says so
            if current.rolled_back_at is not None and (role.role is not Role.CHIEF or current.has_outcome):
                self._states[role].current = None

    def depart(self, role: RoleId, incarnation: int) -> None:
        """Record that a life is about to leave in order, because its Dask worker closes."""
        if (current := self._current(role, incarnation)) is not None:
            current.is_shutting_down = True

    def hang(self, role: RoleId, incarnation: int, reason: str) -> None:
        """Record that a life hangs, so that its Dask worker is about to be lost; it is lost for that `reason`."""
        if (current := self._current(role, incarnation)) is not None:
            current.hang = reason

    def finish(self, role: RoleId, incarnation: int, report: dict[str, Any]) -> None:
        """Record that a life came to its end, and what it says of itself."""
        state = self._states[role]
        is_over = state.is_rolled_back and role.role is not Role.CHIEF
        if self._current(role, incarnation) is None or self.has_ended(role) or is_over:
            return
        state.report = report
        if role.role is Role.CHIEF:
            self._trained_at = self._clock()
            for other, state in self._states.items():
                if other.role is not Role.EVALUATOR and (state.is_waiting or state.is_rolled_back):
                    state.abandoned = NOT_NEEDED
        if role.role is Role.PS:
            for chief in self.waiting():
                if chief.role is Role.CHIEF:  # which was lost as it ended the job, and finds no ps any more
                    self._roll_back(chief)

    def fail(self, role: RoleId, incarnation: int, error: BaseException, fault: UserFault | None = None) -> None:
        """Record that a life ended with an error, and with which `fault` of the user's code, if it is one.

        It counts as lost if the others go on without it, if it leaves in order, or hangs; or if it cannot reach the ps
        and has made a step, is a later one, or not needed any more. Where a signal has ended the loop of a worker, its
        Dask worker closes next, and `lose_slots` records that.
        """
        state, current = self._states[role], self._current(role, incarnation)
        if current is None or self.has_ended(role):
            return
        is_left = current.hang is not None or (current.is_shutting_down and isinstance(error, StoppedError))
        is_needed = role.role is not Role.WORKER or not self.is_trained
        is_cut_off = state.is_cut_off_by(error) if is_needed else isinstance(error, TransportError | WaitTimeoutError)
        if current.rolled_back_at is not None:
            current.has_outcome = True
            state.current = current if current.has_started and not current.has_left else None  # who has started leaves
        elif isinstance(error, InterruptedLoopError) and role.role is Role.WORKER:
            current.has_left = True
        elif isinstance(error, IncarnationOverError) or is_left or is_cut_off:
            self._lose(role, current.hang or str(error), counts=not isinstance(error, IncarnationOverError))
        elif fault is not None and self._is_forgiven(role, fault):
            state.faults.add(fault.kind)
            self._lose(role, fault.sentence)
        else:
            state.error = error

    def lose_slots(self, addresses: Collection[str], why: Mapping[RoleId, str] = {}, *, in_order: bool = False) -> None:
        """Record that Dask workers are gone, and the lives on them: why, and `in_order` if somebody retired them."""
        for role, state in self._states.items():
            current = state.current
            if current is not None and current.slot in addresses and state.has_ended:
                current.has_left = True  # without a word; a later recall must find that there was a life
                state.current = None if state.is_rolled_back else current
            elif current is not None and current.slot in addresses:
                current.is_shutting_down |= in_order
                self._lose(role, current.loss_reason(why.get(role)))

    def lose_late(self, timeout_secs: float) -> None:
        """Record the time: a later life that has not started so long after it was placed is lost."""
        for role in self.lateness.to_start(timeout_secs):
            if (current := self._states[role].current) is not None:  # not recalled because of one before
                self._lose(role, f"it did not start on {current.slot} within {timeout_secs:g} s")

    def abandoned_late(self, timeout_secs: float) -> dict[RoleId, str]:
        """Record the time: a worker that runs so long after the end of training is let go; return their slots."""
        if not self.is_trained or self._clock() - self._trained_at < timeout_secs:
            return {}
        late = {role: slot for role, slot in self.slots().items() if role.role is Role.WORKER}
        for role in late:
            self._states[role].abandoned = f"it did not end within {timeout_secs:g} s after the end of training"
        return late

    # What follows

    def to_end(self) -> list[RoleId]:
        """Return the roles of which a life is over, or is to end: nobody waits for its result any more."""
        return [role for role, state in self._states.items() if state.is_waiting or state.is_to_end]

    def waiting(self) -> list[RoleId]:
        """Return the roles that are to begin a new life, on whatever Dask worker is free."""
        return [role for role, state in self._states.items() if state.is_waiting]

    def due(self) -> list[RoleId]:
        """Return those of `waiting` that may begin now, in this order."""
        if any(s.is_rolled_back and not s.has_ended for role, s in self._states.items() if role.role in SAVING):
            return []
        if servers := [role for role in self.waiting() if role.role is Role.PS]:
            return servers
        return self.waiting() if self._all_listen() else []

    def missing_workers(self) -> list[tuple[RoleId, int]]:
        """Return the workers without a life that trains, while the others do, each with its last life that is over."""
        if not self.is_training or not self._all_listen():
            return []
        lacking = {role: s for role, s in self._states.items() if s.is_waiting or s.is_rolled_back}
        missing = [(role, state) for role, state in lacking.items() if role.role is Role.WORKER]
        before = self._first_incarnation - 1  # of one that had none yet
        return [(role, state.losses[-1].incarnation if state.losses else before) for role, state in missing]

    def losses(self, role: RoleId) -> list[Loss]:
        """Return the lives of a role that were lost or recalled, one after the other."""
        return self._states[role].losses

    def all_started(self) -> bool:
        """Return whether each life that was placed has started: Dask knows then which slots are taken."""
        return all(state.current is None or state.current.has_started for state in self._states.values())

    def is_current(self, role: RoleId, incarnation: int) -> bool:
        """Return whether a life is the present one of its role."""
        return self._current(role, incarnation) is not None

    def is_outlived(self, role: RoleId) -> bool:
        """Return whether training has gone back, and goes on, while the present life of a role is of before that."""
        return self._states[role].is_rolled_back and self._all_listen()

    def has_started(self, role: RoleId) -> bool:
        """Return whether any life of a role has started."""
        return self._states[role].has_started

    def is_listening(self, role: RoleId) -> bool:
        """Return whether the present life of a ps can be reached."""
        current = self._states[role].current
        return current is not None and current.is_listening

    def has_ended(self, role: RoleId) -> bool:
        """Return whether a role has ended for good, well or not."""
        return self._states[role].has_ended

    def all_ended(self) -> bool:
        """Return whether all roles have ended that were ever placed, or missed."""
        return all(state.has_ended for state in self._states.values() if state.num_placed or state.was_unplaced)

    def error(self, role: RoleId) -> BaseException | None:
        """Return what a role has failed with."""
        return self._states[role].error

    def errors(self) -> list[tuple[RoleId, BaseException]]:
        """Return what roles have failed with, in the order of the roles."""
        return [(role, state.error) for role, state in self._states.items() if state.error is not None]

    def report(self, role: RoleId) -> dict[str, Any]:
        """Return what a role that has ended without an error says of itself; StoppedError if it was let go."""
        return self._states[role].report_of(role)

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
        return {role: s.current.slot for role, s in self._states.items() if s.current is not None and not s.has_ended}

    def busy_slots(self) -> list[str]:
        """Return the Dask workers of lives that were recalled and have not left, one for each."""
        return [
            s.current.slot
            for s in self._states.values()
            if s.current is not None and s.current.rolled_back_at is not None
        ]

    def running(self) -> list[RunningIncarnation]:
        """Return the lives that have started and not left, whether or not their outcome is known."""
        incarnations = [
            (r, s.current)
            for r, s in self._states.items()
            if s.current and s.current.has_started and not s.current.has_left
        ]
        return [RunningIncarnation(role, current.incarnation, current.slot) for role, current in incarnations]

    # Inside

    def _current(self, role: RoleId, incarnation: int) -> RoleIncarnation | None:
        """Return a life, if it is the present one of its role."""
        current = self._states[role].current
        return current if current is not None and current.incarnation == incarnation else None

    def _all_listen(self) -> bool:
        """Return whether each ps can be reached, or is needed no more."""
        return all(s.has_ended or s.can_be_reached for role, s in self._states.items() if role.role is Role.PS)

    def _lose(self, role: RoleId, reason: str, *, counts: bool = True) -> None:
        """End a life; `counts` says whether too many such ends within an hour end the job."""
        state = self._states[role]
        current = state.current
        assert current is not None
        if state.is_rolled_back:  # it was over already
            state.current = None
            return
        loss, in_order = RoleLostError(str(role), reason), current.is_shutting_down and current.hang is None
        rolls_back = not self.is_trained and self._must_roll_back(role)
        state.losses.append(
            Loss(current.incarnation, loss, is_rollback=False, rolls_back=rolls_back, in_order=in_order)
        )
        state.current = None
        state.note_loss(self._clock(), counts=counts and not in_order)
        if role.role is not Role.EVALUATOR and self.is_trained:
            state.abandoned = NOT_NEEDED
        elif len(state.lost_at) > self._max_restarts:
            state.error = too_many_losses(role, reason, len(state.lost_at), self._max_restarts)
        elif rolls_back:
            self._roll_back(role)

    def _is_forgiven(self, role: RoleId, fault: UserFault) -> bool:
        """Return whether a role may restart after a fault of the user's code, alone or with the others."""
        is_needed = role.role is Role.EVALUATOR or not self.is_trained
        may_begin_again = is_needed and self._states[role].forgives(fault, self._max_restarts)
        is_mistake = not self._has_stepped and not fault.is_of_system  # in the program of a chief
        may_roll_back = role.role is Role.CHIEF and self._rolls_back and not is_mistake
        return self._forgives and may_begin_again and (may_roll_back or not self._must_roll_back(role))

    def _must_roll_back(self, lost: RoleId) -> bool:
        """Return whether nobody can take up what a lost role of a job in training leaves."""
        match lost.role:
            case Role.PS:
                return True
            case Role.CHIEF:
                servers = [state for role, state in self._states.items() if role.role is Role.PS]
                return not (self._takes_over and self._is_open and all(s.serves for s in servers))
            case Role.WORKER | Role.EVALUATOR:
                return False
            case unknown:
                assert_never(unknown)

    def _roll_back(self, lost: RoleId) -> None:
        """Have the roles that train restart, also those that have ended: their work since the cut is lost.

        Where there is no checkpoint to go back to, the job fails of the loss.
        """
        self._is_open = False
        if not self._rolls_back:
            self._states[lost].error = self._states[lost].losses[-1].error
            return
        for role, state in self._states.items():
            current = state.current
            if role.role is Role.EVALUATOR or current is None or state.error is not None or state.is_rolled_back:
                continue
            report, state.report = state.report, None
            roll_back = RoleLostError(str(role), f"training goes back to the last checkpoint, as {lost} was lost")
            state.losses.append(
                Loss(current.incarnation, roll_back, is_rollback=True, rolls_back=False, in_order=False)
            )
            current.rolled_back_at = self._clock()
            has_ended = current.has_left and (role.role is not Role.CHIEF or report is not None)
            if has_ended or not current.has_started:
                state.current = None
