"""Runs a job on a cluster for its owner: starts the roles, collects their events, waits for them, ends them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from distributed import Client

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.admission import AdmissionPolicy, admission
from psflow.ps_runtime.cluster.incarnations import Loss
from psflow.ps_runtime.cluster.loss_reports import LossReports
from psflow.ps_runtime.cluster.missing_workers import roles_to_begin, shortage, slots_needed
from psflow.ps_runtime.cluster.own_security import new_pem
from psflow.ps_runtime.cluster.placement import SLOT_TIMEOUT_SECS, Placement, host_of
from psflow.ps_runtime.cluster.restarter import Restarter, SlotOf
from psflow.ps_runtime.cluster.role_task import run_role
from psflow.ps_runtime.cluster.role_tasks import PROBE_TIMEOUT_SECS, SLICE_SECS, RoleTasks
from psflow.ps_runtime.cluster.role_timeouts import enforce_timeouts
from psflow.ps_runtime.cluster.rollback import RollbackReservation
from psflow.ps_runtime.cluster.slot_requests import SlotRequests, is_adaptive
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.cluster.versions import Versions
from psflow.ps_runtime.errors import ProtocolError, UsageError
from psflow.ps_runtime.roles.events import (
    Checkpoint,
    Evaluation,
    Event,
    Export,
    FirstStep,
    LogMessage,
    Metrics,
    PsListening,
    Restored,
    RoleEnded,
    RoleLeaving,
    RoleLost,
    RoleStarted,
    SummaryFile,
    TrainingLoss,
    WorkersMissing,
)
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.shipping.pickles import pickled
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.transport.listeners import Address

MAX_RESTARTS = 3
"""Default number for one role within an hour."""
SAME_EVERYWHERE = "install the same on all hosts, and start that worker again"

logger = logging.getLogger(__name__)


class ClusterJob(RoleTasks):
    """Runs one attempt of a job, for the duration of a ``with`` block: no role outlives it.

    Notes
    -----
    `wait` may be called from any thread.
    """

    def __init__(
        self,
        client: Client,
        job: JobSpec,
        on_event: Callable[[Event], None],
        max_restarts: int = MAX_RESTARTS,
        min_workers: int | None = None,
        probe_timeout_secs: float = PROBE_TIMEOUT_SECS,
        placement: Placement = "spread",
        slot_timeout_secs: float = SLOT_TIMEOUT_SECS,
        usual_workers: int | None = None,
        wanted_workers: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.job = replace(job, certificate=new_pem())
        self._supervisor = Supervisor(
            job.roles,
            job.first_incarnation,
            max_restarts,
            rolls_back=job.config.saves_checkpoints,
            # a single replica that computes ahead of its pushes would start over at another step
            takes_over=job.num_workers > 0 or job.config.pipeline_depth == 0,
            forgives=job.config.cluster is None,  # a role that the user has started ends with its error
            num_spare_workers=0 if usual_workers is None else job.num_workers - usual_workers,
        )
        topic = f"psflow-{job.job_id}-{job.attempt}"
        super().__init__(client, topic, self._supervisor, on_event, probe_timeout_secs)
        self._losses = LossReports(client, topic, job.roles, self._supervisor, on_event)
        # opaque bytes: the scheduler does not unpickle them
        self._pickled = pickled(self.job, "the job")
        self._without_program = pickled(self.job.without_program(), "the job")
        self._first_step_at: float | None = None
        """Unix time of the first step of the attempt; passed to each later incarnation."""
        self._ps_addresses: dict[RoleId, Address] = {}
        self._host: str | None = None
        """On which all roles run, and will: a ps then does not listen on a network."""
        self._restarter: Restarter | None = None
        self._rollback = RollbackReservation(client, self._supervisor)
        self._min_workers = min_workers
        self._workers_to_begin = usual_workers if min_workers is None else min_workers
        self._wanted_workers = wanted_workers
        self._num_wanted: int | None = None
        self._placement: Placement = placement
        self._slot_timeout_secs = slot_timeout_secs
        self._versions = Versions(client)
        self._requests: SlotRequests | None = None
        """Of a cluster that grows."""

    def _close(self) -> None:
        if self._requests is not None:
            self._requests.close()
        self._losses.close()
        super()._close()
        self._rollback.close()

    def start(self, policy: AdmissionPolicy, check: Callable[[], None] = never_stop) -> None:
        """Find slots and start the roles: the ps first, the others once every ps listens. Blocks.

        Without a slot for each role the job begins with fewer workers, but at least with `min_workers`, or with the
        usual number.

        Raises
        ------
        CapacityError
            If there are too few slots; see `admission`. Nothing was started.
        UsageError
            If Dask workers have another psflow, Python or numpy. Nothing was started.
        WaitTimeoutError
            If another job does not start, or a role does not report.
        """
        roles = self.job.roles
        if policy.grows or is_adaptive(self._client):
            policy, self._requests = replace(policy, grows=True), SlotRequests(self._client)
        num_needed = slots_needed(roles, self._workers_to_begin)
        with admission(self._client, num_needed, policy, check, self._request) as free:
            slots = free.assigned(roles_to_begin(roles, len(free)), self._placement)
            if faults := self._versions.faults(slots.values()):
                raise UsageError(tuple(f"{fault}; {SAME_EVERYWHERE}" for fault in faults.values()))
            self.start_at(slots, None, check)

    def start_at(self, slots: Mapping[RoleId, str], slot_of: SlotOf | None, check: Callable[[], None]) -> None:
        """Start roles on given slots, as `start` does. Blocks; WaitTimeoutError likewise."""
        hosts = set(map(host_of, slots.values()))
        missing = [role for role in self.job.roles if role.role is Role.WORKER and role not in slots]
        may_spread = missing and self.job.transport in ("auto", "tcp")  # to hosts that have slots for them
        self._host = hosts.pop() if len(hosts) == 1 and not may_spread else None
        too_few = partial(shortage, self._supervisor, self.job.num_workers, self._min_workers)
        self._restarter = Restarter(
            self._client,
            self._supervisor,
            self._submit,
            self._host,
            slot_of,
            too_few,
            self._versions.faults,
            self._placement,
            self._slot_timeout_secs,
            self._request,
        )
        listens, has_started = self._supervisor.is_listening, self._supervisor.has_started
        servers = [role for role in slots if role.role is Role.PS]
        others = [role for role in slots if role.role is not Role.PS]
        self._restarter.reserved = [slots[role] for role in others]
        for role in servers:
            self._submit(role, slots[role])
        self._await(lambda: [role for role in servers if not listens(role)], "start listening", check)
        self._restarter.reserved = ()
        with self._changed:  # it may have been scaled meanwhile
            others = [role for role in others if self._supervisor.is_wanted(role)]
        for role in others:
            self._submit(role, slots[role])
        self._await(lambda: [role for role in (*servers, *others) if not has_started(role)], "start", check)
        with self._changed:
            for role in set(self.job.roles) - {*servers, *others}:
                self._supervisor.mark_unplaced(role)

    def lacks_evaluator(self) -> bool:
        """Return whether training is complete, and no evaluator has ever run."""
        with self._changed:
            evaluators = [role for role in self.job.roles if role.role is Role.EVALUATOR]
            return self._supervisor.is_trained and not any(map(self._supervisor.has_started, evaluators))

    def wait(self, role: RoleId, timeout_secs: float, num_lost: int = 0) -> dict[str, Any] | None:
        """Wait for a role to end; return its report, or None if it has not ended.

        Raises
        ------
        Exception
            The role's failure; RoleLostError if another of its incarnations was lost, and did not leave in order.
        """
        supervisor = self._supervisor

        def lost() -> list[Loss]:
            return [loss for loss in supervisor.losses(role) if not loss.in_order]

        def has_news() -> bool:
            return supervisor.has_ended(role) or len(lost()) > num_lost

        with self._changed:
            if not self._changed.wait_for(has_news, timeout_secs):
                return None
            if (error := supervisor.error(role)) is not None:
                raise error
            if not supervisor.has_ended(role):
                raise lost()[num_lost].error
            return supervisor.report(role)

    def absence(self, role: RoleId) -> str | None:
        """Return why a role does not run that has left in order, and may restart; None if it runs."""
        with self._changed:
            losses = self._supervisor.losses(role)
            is_away = losses and losses[-1].in_order and role not in self._supervisor.slots()
            return losses[-1].error.error if is_away else None

    def join(self, check: Callable[[], None] = never_stop) -> dict[str, dict[str, Any]]:
        """Wait until all roles have ended; return their reports by name.

        Raises
        ------
        RoleFailedError
            If a role has failed: of several errors the one that caused the others.
        WaitTimeoutError
            If the scheduler is silent for minutes, or a lost role finds no slot and the job cannot train without it.
        """
        has_ended = False
        while not has_ended:
            check()
            self._look(check)
            with self._changed:
                self._changed.wait_for(self._has_news, SLICE_SECS)
                has_ended = self._supervisor.all_ended()
            self._raise_failure(check)
        with self._changed:
            return {str(role): report for role, report in self._supervisor.reports().items()}

    def _submit(self, role: RoleId, slot: str) -> None:
        """Start an incarnation of a role."""
        with self._changed:
            if self._supervisor.has_ended(role):  # it is not needed any more
                return
            incarnation = self._supervisor.place(role, slot)
            servers = [RoleId(Role.PS, i) for i in range(self.job.num_ps)] if role.role is not Role.PS else []
            addresses = [self._ps_addresses[server] for server in servers]
        self._futures.submit(
            role,
            incarnation,
            slot,
            run_role,
            self._pickled if self.job.runs_program(role) else self._without_program,
            addresses,
            number=incarnation - self.job.first_incarnation,
            is_alone=self._host is not None,
            first_step_at=self._first_step_at,
        )

    def _request(self, num_slots: int, check: Callable[[], None]) -> None:
        if self._requests is not None:
            is_training = self._restarter is not None and not self._restarter.reserved
            self._requests.ask(num_slots, check, is_training=is_training)

    def _look(self, check: Callable[[], None], *, has_lock: bool = False) -> None:
        """Detect and report losses, end what is to end, and place what may restart."""
        assert self._restarter is not None
        if (wanted := self._wanted_workers()) != self._num_wanted and wanted is not None:
            self._num_wanted = wanted
            with self._changed:
                self._supervisor.want_workers(wanted)
            logger.warning("the job is scaled to %d worker%s", wanted, "" if wanted == 1 else "s")
        enforce_timeouts(self._supervisor)
        self._membership.look()
        self._losses.report()
        if not has_lock:
            self._rollback.look(check)
        with self._changed:
            over = self._supervisor.to_end()
        self._futures.cancel(over)  # or Dask runs them again if their addresses come back
        self._restarter.place(check, has_lock=has_lock or self._rollback.has_lock)

    def _note(self, event: Event, role: RoleId) -> bool:
        """Record an event; return whether it comes from the present incarnation of its role, or is a log message."""
        is_current = self._supervisor.is_current(role, event.incarnation)
        match event:
            case RoleStarted() | RoleEnded():
                self._note_task(event, role)
            case RoleLeaving():
                self._supervisor.begin_shutdown(role, event.incarnation)
            case PsListening():
                if is_current:
                    self._ps_addresses[role] = event.address
                    self._supervisor.listen(role, event.incarnation)
            case FirstStep():
                self._supervisor.step(role, event.incarnation)
                self._first_step_at = self._first_step_at or event.time
            case Metrics() | SummaryFile():
                return is_current and not self._supervisor.is_outlived(role)
            case Restored() | TrainingLoss() | Checkpoint() | Evaluation() | Export():
                pass
            case LogMessage():
                return True
            case RoleLost() | WorkersMissing():
                raise ProtocolError(event.role, "a role cannot report its own loss")
            case _:
                assert_never(event)
        return is_current

    def _has_news(self) -> bool:
        return self._losses.has_news() or self._supervisor.all_ended() or self._any_error()
