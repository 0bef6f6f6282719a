"""Decides as a state machine, without Dask, which roles of a job are lost, which restart, and when the job fails.

Events in: an incarnation was placed on a Dask worker, started, listens, left, returned, failed; a Dask worker is lost,
or closes. Each becomes a change of the table in `incarnations.py`. Queries out: which incarnations are to end, which
roles are to be placed on a Dask worker next, and which error the job fails with.

A ps holds values that no other process has. Once one is lost, all roles that train roll back, and restart from the last
checkpoint: the ps first, the others once every ps listens. A checkpoint is written by the ps and the chief together, so
the new ones begin only after the old ones have ended.

A lost chief restarts alone, as a worker does, and takes over: the ps hold all that it must know. Training rolls back
with it only where that is impossible: no step was made yet, so the variables may have no values; a ps has ended; or no
other role trains, and the next incarnation of the chief would not make the same steps.

The first fault of a kind in user code (a network disk that is away, say) counts as a loss of a worker, the evaluator,
or the chief of a job that has made a step; the second one ends the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, assert_never

from psflow.ps_runtime.cluster.incarnations import (
    NOT_NEEDED,
    NOT_WANTED,
    FailureKind,
    Loss,
    MemberFailure,
    RoleChange,
    RoleState,
    TaskProgress,
    UserFault,
    too_many_losses,
)
from psflow.ps_runtime.cluster.role_records import RoleRecords
from psflow.ps_runtime.errors import (
    IncarnationOverError,
    InterruptedLoopError,
    RoleLostError,
    StoppedError,
    TransportError,
    WaitTimeoutError,
)
from psflow.ps_runtime.specs.roles import Role, RoleId

SAVING = (Role.PS, Role.CHIEF)
"""The roles that write checkpoints: training does not continue without one of them."""


class Supervisor(RoleRecords):
    """All incarnations of the roles of one attempt."""

    def __init__(
        self,
        roles: Iterable[RoleId],
        first_incarnation: int,
        max_restarts: int,
        *,
        rolls_back: bool = True,
        takes_over: bool = True,
        forgives: bool = True,
        num_spare_workers: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(roles, first_incarnation, clock)
        self._max_restarts = max_restarts
        self._rolls_back = rolls_back
        self._takes_over = takes_over
        self._forgives = forgives
        self._num_spare_workers = num_spare_workers
        """Among those that are wanted: they begin if there are slots, and the job does not lack them otherwise."""
        self._num_wanted = sum(role.role is Role.WORKER for role in self._records)
        """Of the workers; those of higher numbers do not begin."""
        self._trained_at = 0.0
        self._has_stepped = False
        self._is_open = False
        """A step was made since training began or rolled back: variables have values, and ps-0 gives tickets."""

    # Events

    def place(self, role: RoleId, slot: str) -> int:
        """Record that an incarnation of `role` is placed on the Dask worker at `slot`; return its number."""
        is_early = role.role is not Role.PS and not self._all_listen()
        incarnation = self._placed(role, slot)
        self._records[role].change(RoleChange.PLACE_EARLY if is_early else RoleChange.PLACE)
        return incarnation

    def mark_unplaced(self, role: RoleId) -> None:
        """Record that the others have begun without a worker or the evaluator, because it had no Dask worker."""
        self._records[role].began_late = self._records[role].change(RoleChange.MISS)

    def listen(self, role: RoleId, incarnation: int) -> None:
        """Record that a ps can be reached."""
        if (current := self._current(role, incarnation)) is not None:
            current.is_listening = True

    def step(self, role: RoleId, incarnation: int) -> None:
        """Record that an incarnation has made a step."""
        current = self._current(role, incarnation)
        if current is not None and self._records[role].state is not RoleState.RECALLED:
            current.has_stepped = self._is_open = self._has_stepped = True

    def leave(self, role: RoleId, incarnation: int) -> None:
        """Record that an incarnation no longer runs; `finish` or `fail` records how it has ended."""
        super().leave(role, incarnation)
        current = self._current(role, incarnation)
        # a chief may have completed training
        if current is not None and (role.role is not Role.CHIEF or current.has_outcome):
            self._records[role].change(RoleChange.LEAVE)

    def begin_shutdown(self, role: RoleId, incarnation: int) -> None:
        """Record a graceful shutdown: an incarnation is about to leave, because its Dask worker closes."""
        if (current := self._current(role, incarnation)) is not None:
            current.is_shutting_down = True

    def finish(self, role: RoleId, incarnation: int, report: dict[str, Any]) -> None:
        """Record that an incarnation has ended without an error, and its report."""
        record = self._records[role]
        what = RoleChange.COMPLETE if role.role is Role.CHIEF else RoleChange.RETURN
        if self._current(role, incarnation) is None or not record.change(what):
            return
        record.report = report
        if role.role is Role.CHIEF:
            self._trained_at = self._clock()
            for other, record in self._records.items():
                if other.role is not Role.EVALUATOR and record.state is not RoleState.PLACED:
                    record.abandon(NOT_NEEDED if self.is_wanted(other) else NOT_WANTED)
        if role.role is Role.PS:
            for chief in self.waiting():
                if chief.role is Role.CHIEF:  # it was lost as it ended the job, and finds no ps any more
                    self._roll_back(chief)

    def fail(self, role: RoleId, incarnation: int, error: BaseException, fault: UserFault | None = None) -> None:
        """Record that an incarnation ended with an error, and the `fault` if the error is of user code.

        It counts as lost if the others go on without it, if it shuts down gracefully, or hangs; or if it cannot reach
        the ps and has made a step, is a later one, or is not needed any more. Where a signal has ended the training
        loop of a worker, its Dask worker closes next, and `lose` records that.
        """
        record, current = self._records[role], self._current(role, incarnation)
        if current is None or record.has_ended:
            return
        is_left = current.hang is not None or (current.is_shutting_down and isinstance(error, StoppedError))
        is_needed = role.role is not Role.WORKER or not self.is_trained
        is_cut_off = record.is_cut_off_by(error) if is_needed else isinstance(error, TransportError | WaitTimeoutError)
        if record.state is RoleState.RECALLED:
            current.has_outcome = True
            if current.progress is not TaskProgress.STARTED:  # it reports its end
                record.change(RoleChange.LEAVE)
        elif isinstance(error, InterruptedLoopError) and role.role is Role.WORKER:
            current.progress = TaskProgress.LEFT
        elif isinstance(error, IncarnationOverError) or is_left or is_cut_off:
            reason = str(error) if current.hang is None else current.hang.reason
            self._lose(role, reason, counts=not isinstance(error, IncarnationOverError))
        elif fault is not None and self._is_forgiven(role, fault):
            record.faults.add(fault.kind)
            self._lose(role, fault.sentence)
        else:
            record.fail(error)

    def lose(self, failure: MemberFailure) -> None:
        """Record that an incarnation is gone with its Dask worker, or hangs, so that its Dask worker will be ended."""
        record, current = self._records[failure.role], self._current(failure.role, failure.incarnation)
        if current is None:
            return
        if failure.kind is FailureKind.HANG:
            current.hang = failure
            return
        if record.has_ended:
            current.progress = TaskProgress.LEFT  # a later rollback must find that there was an incarnation
        first = current.first_failure(failure)
        self._lose(failure.role, first.reason, since=first.since)

    def want_workers(self, number: int) -> None:
        """Record how many workers are to train: the others end, and those that are missing may begin."""
        self._num_wanted, self._num_spare_workers = number, 0
        for role in self._in(RoleState.PLACED):
            if not (self.is_wanted(role) or self.is_trained):
                self._recall(role, NOT_WANTED, in_order=True)

    def lose_late(self, timeout_secs: float) -> None:
        """Record the time: a later incarnation that has not started within the limit is lost."""
        later = [role for role, r in self._records.items() if r.is_later and not r.has_ended and not r.is_begun]
        for role in self.late(later, timeout_secs):
            if (current := self._records[role].current) is not None:  # not recalled because of an earlier one
                self._lose(role, f"it did not start on {current.slot} within {timeout_secs:g} s")

    def abandoned_late(self, timeout_secs: float) -> dict[RoleId, str]:
        """Abandon workers that still run so long after the end of training; return their slots."""
        if not self.is_trained or self._clock() - self._trained_at < timeout_secs:
            return {}
        late = {role: slot for role, slot in self.slots().items() if role.role is Role.WORKER}
        for role in late:
            self._records[role].abandon(f"it did not end within {timeout_secs:g} s after the end of training")
        return late

    # Queries

    def late_to_leave(self, timeout_secs: float) -> list[RoleId]:
        """Return the ps and the chief if they have not left within the limit after they were recalled."""
        saving = [(role, self._records[role].current) for role in self.recalled() if role.role in SAVING]
        return [role for role, one in saving if one is not None and self._clock() - one.recalled_at >= timeout_secs]

    def late_to_listen(self, timeout_secs: float) -> list[RoleId]:
        """Return the ps that have started, but do not listen within the limit after being placed."""
        servers = [role for role in self._in(RoleState.PLACED) if role.role is Role.PS and self._records[role].is_begun]
        return self.late([role for role in servers if not self.is_listening(role)], timeout_secs)

    def to_end(self) -> list[RoleId]:
        """Return the roles whose incarnation is over, or is to end: the job no longer waits for its result."""
        ending = [
            role
            for role in self._in(RoleState.RECALLED, RoleState.ABANDONED)
            if (current := self._records[role].current) is not None and current.progress is not TaskProgress.LEFT
        ]
        return [role for role in self._records if role in ending or self._records[role].state is RoleState.WAITING]

    def recalled(self) -> list[RoleId]:
        """Return the roles whose incarnation is to end before they restart, mostly because training rolls back."""
        return [role for role in self._in(RoleState.RECALLED) if self.is_wanted(role)]

    def waiting(self) -> list[RoleId]:
        """Return the roles that are to begin a new incarnation, on any free Dask worker."""
        return [role for role in self._in(RoleState.WAITING) if self.is_wanted(role)]

    def is_wanted(self, role: RoleId) -> bool:
        """Return whether a role is to run: a job that is scaled down has workers that are not."""
        return role.role is not Role.WORKER or role.index < self._num_wanted

    def missing(self) -> list[RoleId]:
        """Return the workers that have no slot, and that the job lacks."""
        workers = [role for role in self.waiting() if role.role is Role.WORKER]
        return workers[: max(0, len(workers) - self._num_spare_workers)]

    @property
    def num_expected(self) -> int:
        """The number of workers of which none is missing."""
        return self._num_wanted - self._num_spare_workers

    @property
    def num_without_slot(self) -> int:
        """The number of workers that wait for a slot, or are not wanted."""
        return sum(role.role is Role.WORKER for role in self._in(RoleState.WAITING))

    def lacking(self) -> list[RoleId]:
        """Return the roles of `waiting` that the job lacks: not a spare worker, nor an evaluator that never came."""
        missing = self.missing()
        return [
            role
            for role in self.waiting()
            if role in missing
            or role.role in SAVING
            or (role.role is Role.EVALUATOR and self._records[role].num_placed)
        ]

    def due(self) -> list[RoleId]:
        """Return the roles of `waiting` that may begin now, in this order."""
        if any(role.role in SAVING for role in self.recalled()):
            return []
        if servers := [role for role in self.waiting() if role.role is Role.PS]:
            return servers
        return self.waiting() if self._all_listen() else []

    def missing_workers(self) -> list[tuple[RoleId, int]]:
        """Return the workers that do not train while the others do, each with its last incarnation that is over."""
        if not self.is_training or not self._all_listen():
            return []
        missing = [r for r in self._in(RoleState.WAITING, RoleState.RECALLED) if r.role is Role.WORKER]
        before = self._first_incarnation - 1  # for a worker that had none yet
        return [(role, lost[-1].incarnation if (lost := self.losses(role)) else before) for role in missing]

    def losses(self, role: RoleId) -> list[Loss]:
        """Return the incarnations of a role that were lost or rolled back, in order."""
        return self._records[role].losses

    def all_started(self) -> bool:
        """Return whether each placed incarnation has started: by then Dask lists their slots as taken."""
        incarnations = [record.current for record in self._records.values() if record.current is not None]
        return all(current.progress is not TaskProgress.SUBMITTED for current in incarnations)

    def is_outlived(self, role: RoleId) -> bool:
        """Return whether the present incarnation of a role precedes a rollback after which training continues."""
        return self._records[role].state is RoleState.RECALLED and self._all_listen()

    def is_listening(self, role: RoleId) -> bool:
        """Return whether the present incarnation of a ps can be reached."""
        current = self._records[role].current
        return current is not None and current.is_listening

    def report(self, role: RoleId) -> dict[str, Any]:
        """Return the report of a role that has ended without an error."""
        return self._records[role].end()

    def reports(self) -> dict[RoleId, dict[str, Any]]:
        """Return the reports of the roles that have ended without an error."""
        return {role: record.report for role, record in self._records.items() if record.report is not None}

    @property
    def is_trained(self) -> bool:
        """Whether the chief has completed training: no other role that trains is needed any more."""
        return any(role.role is Role.CHIEF for role in self._in(RoleState.RETURNED))

    @property
    def is_training(self) -> bool:
        """Whether the ps and the chief run, or start on their Dask workers."""
        return not any(role.role in SAVING for role in self.waiting())

    def busy_slots(self) -> list[str]:
        """Return the Dask workers of incarnations that are to end and have not left, one for each."""
        incarnations = [self._records[role].current for role in self.to_end()]
        return [current.slot for current in incarnations if current is not None]

    # Inside

    def _all_listen(self) -> bool:
        """Return whether each ps can be reached, or is no longer needed."""
        return all(r.has_ended or r.can_be_reached for role, r in self._records.items() if role.role is Role.PS)

    def _lose(self, role: RoleId, reason: str, *, since: float | None = None, counts: bool = True) -> None:
        """Record that an incarnation is gone; `counts` says whether too many such ends within an hour end the job."""
        record = self._records[role]
        current = record.current
        assert current is not None
        if record.state is not RoleState.PLACED:  # it was over already
            record.change(RoleChange.LOSE)
            return
        loss, in_order = RoleLostError(str(role), reason), current.is_shutting_down and current.hang is None
        rolls_back = not self.is_trained and self._must_roll_back(role)
        at = self._clock() if since is None else since
        record.losses.append(Loss(current.incarnation, loss, at, rolls_back=rolls_back, in_order=in_order))
        record.current = None
        record.record_loss(self._clock(), counts=counts and not in_order)
        if role.role is not Role.EVALUATOR and self.is_trained:
            record.abandon(NOT_NEEDED)
        elif len(record.lost_at) > self._max_restarts:
            record.fail(too_many_losses(role, reason, len(record.lost_at), self._max_restarts))
        else:
            record.change(RoleChange.LOSE)
            if rolls_back:
                self._roll_back(role)

    def _is_forgiven(self, role: RoleId, fault: UserFault) -> bool:
        """Return whether a role may restart after a fault of user code, alone or with the others."""
        is_needed = role.role is Role.EVALUATOR or not self.is_trained
        may_restart = is_needed and self._records[role].forgives(fault, self._max_restarts)
        is_mistake = not self._has_stepped and not fault.is_of_system  # in the program of a chief
        may_roll_back = role.role is Role.CHIEF and self._rolls_back and not is_mistake
        return self._forgives and may_restart and (may_roll_back or not self._must_roll_back(role))

    def _must_roll_back(self, lost: RoleId) -> bool:
        """Return whether no new incarnation of a lost role can take over, in a job that still trains."""
        match lost.role:
            case Role.PS:
                return True
            case Role.CHIEF:
                servers = [record for role, record in self._records.items() if role.role is Role.PS]
                return not (self._takes_over and self._is_open and all(s.can_be_reached for s in servers))
            case Role.WORKER | Role.EVALUATOR:
                return False
            case unknown:
                assert_never(unknown)

    def _roll_back(self, lost: RoleId) -> None:
        """Have the roles that train restart, also those that have ended: their work since the snapshot is lost.

        Where there is no checkpoint to roll back to, the job fails with the loss.
        """
        self._is_open = False
        if not self._rolls_back:
            self._records[lost].fail(self._records[lost].losses[-1].error)
            return
        reason = f"training rolls back to the last checkpoint, as {lost} was lost"
        for role in self._records:
            if role.role is not Role.EVALUATOR:
                self._recall(role, reason)

    def _recall(self, role: RoleId, reason: str, *, in_order: bool = False) -> None:
        """Have the present incarnation of a role end, if it has one: in a rollback, unless it is `in_order`."""
        record = self._records[role]
        if (current := record.current) is None or not record.change(RoleChange.RECALL):
            return
        record.report = None
        current.recalled_at = at = self._clock()
        error = RoleLostError(str(role), reason)
        record.losses.append(Loss(current.incarnation, error, at, is_rollback=not in_order, in_order=in_order))
        has_left = current.progress is TaskProgress.LEFT and role.role is not Role.CHIEF
        if has_left or current.progress is TaskProgress.SUBMITTED:
            record.change(RoleChange.LEAVE)

    def can_do_without(self, role: RoleId) -> bool:
        """Return whether the others go on without a role that hangs, once its tickets return."""
        return role.role is Role.WORKER
