"""A job on a cluster, as its owner sees it: start the roles, hear of them, wait for them, end them."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self, assert_never
from urllib.parse import urlsplit

from distributed import Client

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.admission import AdmissionPolicy, admission
from psflow.ps_runtime.cluster.failures import root_cause
from psflow.ps_runtime.cluster.loss_messages import send_loss
from psflow.ps_runtime.cluster.presence import Presence
from psflow.ps_runtime.cluster.restarting import Restarting, SlotOf
from psflow.ps_runtime.cluster.role_futures import LIVES_PER_ATTEMPT, RoleFutures
from psflow.ps_runtime.cluster.supervisor import SAVING, Loss, Supervisor
from psflow.ps_runtime.deadline import ROLES_SECS, Deadline, stop_clock
from psflow.ps_runtime.errors import ProtocolError, RoleFailedError, StoppedError, WaitTimeoutError
from psflow.ps_runtime.roles.event_codec import decode_event
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
)
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.transport.address import Address

__all__ = ["ClusterJob"]

SLICE_SECS = 0.2
START_TIMEOUT_SECS = 60.0
"""For a submitted role to report; its process runs already."""
LEAVE_TIMEOUT_SECS = 300.0
"""For a ps, or the chief, that was told to end and may have a step of the user's to finish."""
END_TIMEOUT_SECS = 3.0
"""For cancelled roles to end, or since a signal; they look at least four times a second."""
SETTLE_SECS = 1.0
"""After a first failure: how long to wait for the one that caused it."""
MAX_RESTARTS = 3
"""Of one role within an hour, where nobody has said another number."""

PS_0 = RoleId(Role.PS, 0)

logger = logging.getLogger(__name__)


class ClusterJob:
    """One attempt of a job, for the time of a ``with`` block: whatever happens, no role outlives it.

    Parameters
    ----------
    client : Client
        Of the cluster to run on.
    job : JobSpec
        The attempt; it is pickled once, for all roles.
    on_event : callable
        Takes the events of all roles, in the order of each role, in a thread of the Dask client or in that of `join`;
        must not block.
    max_restarts : int, optional
        New lives of a role within an hour, where Dask workers are lost: the role begins again on another slot. While a
        worker or the evaluator is lost the others do not stop; with a lost ps or chief all training goes back to the
        last checkpoint, and a job that saves none ends.

    Notes
    -----
    `wait` may be called from any thread.
    """

    def __init__(
        self, client: Client, job: JobSpec, on_event: Callable[[Event], None], max_restarts: int = MAX_RESTARTS
    ) -> None:
        self.job = job
        self._client = client
        self._on_event = on_event
        self._changed = threading.Condition()
        self._futures = RoleFutures(client, job, self._take_outcome)
        self._supervisor = Supervisor(
            job.roles, job.attempt * LIVES_PER_ATTEMPT, max_restarts, goes_back=job.config.saves_checkpoints
        )
        self._cause: RoleFailedError | None = None
        self._presence = Presence(client)
        self._ps_addresses: dict[RoleId, Address] = {}
        self._num_told = Counter[RoleId]()
        """Losses that were handed on."""
        self._hosts: set[str | None] = set()
        """Of the slots that the roles began on."""
        self._restarting: Restarting | None = None
        self._told_missing: set[tuple[RoleId, int, Address]] = set()

    def __enter__(self) -> Self:
        self._client.subscribe_topic(self._futures.topic, self._take_event)
        self._client.subscribe_topic("all", self._take_cluster_event)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._futures.cancel_all()
        try:
            with self._changed:
                timeout_secs = min(END_TIMEOUT_SECS, stop_clock.left(ROLES_SECS))
                if not self._changed.wait_for(lambda: not self._running(), timeout_secs):
                    logger.warning("%s did not end within %.1f s", ", ".join(self._running()), timeout_secs)
        finally:  # somebody may not want to wait
            self._presence.close()
            self._client.unsubscribe_topic(self._futures.topic)
            self._client.unsubscribe_topic("all")

    def start(self, policy: AdmissionPolicy, check: Callable[[], None] = never_stop) -> None:
        """Find a slot for each role and start them all: the ps first, the others once every ps listens. Blocks.

        Parameters
        ----------
        policy : AdmissionPolicy
            With a cluster that is full.
        check : callable
            Called at least once a second; raises to end the wait.

        Raises
        ------
        CapacityError
            If there are too few slots; see `admission`. Nothing was started.
        WaitTimeoutError
            If another job does not start, or a role does not report.
        """
        with admission(self._client, len(self.job.roles), policy, check) as slots:
            self.start_at(dict(zip(self.job.roles, slots, strict=True)), None, check)

    def start_at(self, slots: Mapping[RoleId, str], slot_of: SlotOf | None, check: Callable[[], None]) -> None:
        """Start each role on a slot that it has already, as `start` does. Blocks; WaitTimeoutError likewise.

        Parameters
        ----------
        slots : mapping of RoleId to str
            The Dask worker of each role of the job; nothing else may use these threads.
        slot_of : callable or None
            Returns where a lost role begins again, or None while it has no place; None: on any free slot.
        check : callable
            Called at least once a second; raises to end the wait.
        """
        self._hosts = {urlsplit(slot).hostname for slot in slots.values()}
        # a ps that is alone on its host with all others listens to no other one
        host = next(iter(self._hosts)) if len(self._hosts) == 1 else None
        self._restarting = Restarting(self._client, self._supervisor, self._submit, host, slot_of)
        listens, has_started = self._supervisor.is_listening, self._supervisor.has_started
        servers = [role for role in self.job.roles if role.role is Role.PS]
        for role in servers:
            self._submit(role, slots[role])
        self._await(lambda: [role for role in servers if not listens(role)], "start listening", check)
        for role in self.job.roles:
            if role.role is not Role.PS:
                self._submit(role, slots[role])
        self._await(lambda: [role for role in self.job.roles if not has_started(role)], "start", check)

    def wait(self, role: RoleId, timeout_secs: float, num_lost: int = 0) -> dict[str, Any] | None:
        """Wait for a role to end; return its report, or None if it is running still.

        Parameters
        ----------
        role : RoleId
            A role of the job.
        timeout_secs : float
            How long to wait.
        num_lost : int, optional
            Lives of the role that were lost, as far as the caller has heard.

        Raises
        ------
        Exception
            What the role failed with; RoleLostError if a further life of it was lost.
        """
        supervisor = self._supervisor

        def has_news() -> bool:
            return supervisor.has_ended(role) or len(supervisor.losses(role)) > num_lost

        with self._changed:
            if not self._changed.wait_for(has_news, timeout_secs):
                return None
            if (error := supervisor.error(role)) is not None:
                raise error
            if not supervisor.has_ended(role):
                raise supervisor.losses(role)[num_lost].error
            if role not in supervisor.reports():
                raise StoppedError(str(role), "it was lost, and the job was over before it had begun again")
            return supervisor.reports()[role]

    def error(self, role: RoleId) -> BaseException | None:
        """Return what a role has failed with, of all its lives."""
        with self._changed:
            return self._supervisor.error(role)

    def join(self, check: Callable[[], None] = never_stop) -> dict[str, dict[str, Any]]:
        """Wait until all roles have ended; return their reports by name.

        Parameters
        ----------
        check : callable
            Called several times a second; raises to end the wait.

        Raises
        ------
        RoleFailedError
            If a role has failed: of several errors the one that the others follow from.
        WaitTimeoutError
            If the scheduler is silent for minutes, or a lost role finds no slot though nobody trains without it.
        """
        supervisor = self._supervisor
        while not supervisor.all_ended():
            check()
            self._begin_again(check)
            with self._changed:
                self._changed.wait_for(self._has_news, SLICE_SECS)
            self._raise_failure(check)
        self._raise_failure(check)  # they may all have failed before the first look
        return {str(role): report for role, report in supervisor.reports().items()}

    def root_cause(self) -> RoleFailedError:
        """Return what the job fails of, once a role has failed: the same each time. Blocks for a second at most.

        Of several errors it is the one that the others follow from, as far as those are known by then.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._cause is not None or self._supervisor.all_ended(), SETTLE_SECS)
            if self._cause is None:
                self._cause = root_cause(self._supervisor.errors())
                self._changed.notify_all()
            return self._cause

    def _raise_failure(self, check: Callable[[], None]) -> None:
        """Raise what a role has failed with, unless `check` knows better: a signal may have ended the roles as well."""
        if self._any_error():
            cause = self.root_cause()
            check()
            raise cause

    def _submit(self, role: RoleId, slot: str) -> None:
        """Have a life of a role begin."""
        with self._changed:
            incarnation = self._supervisor.place(role, slot)
            servers = [RoleId(Role.PS, i) for i in range(self.job.num_ps)] if role.role is not Role.PS else []
            addresses = [self._ps_addresses[server] for server in servers]
        self._futures.submit(role, incarnation, slot, addresses, is_alone=len(self._hosts) == 1)

    def _begin_again(self, check: Callable[[], None]) -> None:
        """Find out what is lost and tell of it, end what is to end, and place what may begin again."""
        assert self._restarting is not None
        self._look()
        self._tell_losses()
        self._futures.cancel(self._supervisor.to_end())  # or Dask runs them once more if their addresses come back
        self._restarting.place(check)
        self._tell_missing()

    def _take_event(self, stamped: tuple[float, Any]) -> None:
        """Note what an event says of the roles, and hand it on; the job fails of data that is no event of a role."""
        with self._changed:
            try:
                event = decode_event(stamped[1])
                if not self._note(event):
                    return
            except ProtocolError as error:
                self._cause = self._cause or RoleFailedError(error.peer, error.reason)
                return
            finally:
                self._changed.notify_all()
        self._on_event(event)

    def _note(self, event: Event) -> bool:
        """Take note of an event; return whether it is of the present life of its role, or a message of any."""
        try:
            role = RoleId.parse(event.role)
            is_current = self._supervisor.is_current(role, event.incarnation)
        except (KeyError, ValueError):
            raise ProtocolError(event.role, f"this job has no such role, but {event} came from it") from None
        match event:
            case RoleStarted():
                self._supervisor.start(role, event.incarnation)
            case RoleEnded():
                self._supervisor.leave(role, event.incarnation)
            case RoleLeaving():
                self._supervisor.depart(role, event.incarnation)
            case PsListening():
                if is_current:
                    self._ps_addresses[role] = event.address
                    self._supervisor.listen(role, event.incarnation)
            case Restored() | FirstStep() | Metrics() | SummaryFile() | Checkpoint() | Evaluation() | Export():
                pass
            case LogMessage():
                return True
            case RoleLost():
                raise ProtocolError(event.role, "no role says of itself that it is lost")
            case _:
                assert_never(event)
        return is_current

    def _take_cluster_event(self, stamped: tuple[float, Any]) -> None:
        event = stamped[1]
        if isinstance(event, Mapping) and event.get("action") == "remove-worker":
            self._lose({event["worker"]}, in_order=event["expected"])

    def _look(self) -> None:
        """Find out about Dask workers that have left and of which nobody has told."""
        with self._changed:
            self._supervisor.lose_late(START_TIMEOUT_SECS)
            if late := self._supervisor.late_to_leave(LEAVE_TIMEOUT_SECS):
                names = ", ".join(map(str, late))
                raise WaitTimeoutError(names, "end, so that training goes back to a checkpoint", LEAVE_TIMEOUT_SECS)
            slots = set(self._supervisor.slots().values())
        self._lose(self._presence.missing(slots))

    def _lose(self, addresses: Collection[str], *, in_order: bool = False) -> None:
        with self._changed:
            self._supervisor.lose_slots(addresses, in_order=in_order)
            self._changed.notify_all()

    def _tell_losses(self) -> None:
        """Hand on what is lost and may begin again; what may not is let go, or what the job fails of."""
        for role in self.job.roles:
            if self._supervisor.error(role) is not None:
                continue
            for loss in self._supervisor.losses(role)[self._num_told[role] :]:
                self._num_told[role] += 1
                if not loss.is_recall:
                    self._tell_loss(role, loss)

    def _tell_missing(self) -> None:
        """Tell a new ps-0 of workers that find no slot, or do not end: it would wait for them with updates of all."""
        for role, incarnation in self._supervisor.missing_workers():
            told = (role, incarnation, self._ps_addresses[PS_0])
            if told not in self._told_missing:
                self._told_missing.add(told)
                self._send_loss(role, incarnation)

    def _send_loss(self, role: RoleId, incarnation: int) -> None:
        if (slot := self._supervisor.slots().get(PS_0)) is not None:
            send_loss(self._client, self._futures.topic, slot, (role.replica, incarnation))

    def _tell_loss(self, role: RoleId, loss: Loss) -> None:
        if role.role is Role.WORKER:  # one that left in order may not have come to say so
            self._send_loss(role, loss.incarnation)
        if not self._supervisor.has_ended(role):
            goes_back = role.role in SAVING
            self._on_event(RoleLost(loss.error.error, goes_back, role=str(role), incarnation=loss.incarnation))

    def _await(self, missing: Callable[[], list[RoleId]], action: str, check: Callable[[], None]) -> None:
        """Wait until `missing` returns no role that still has to do `action`; raise the failure of one that ends."""
        deadline = Deadline(START_TIMEOUT_SECS)
        while not deadline.has_passed:
            self._begin_again(check)
            with self._changed:
                if self._changed.wait_for(lambda: not missing() or self._any_error(), SLICE_SECS) and not missing():
                    return
            check()
            self._raise_failure(check)
        if late := missing():
            raise WaitTimeoutError(", ".join(map(str, late)), action, START_TIMEOUT_SECS)

    def _has_news(self) -> bool:
        supervisor = self._supervisor
        is_lost = any(len(supervisor.losses(role)) > self._num_told[role] for role in self.job.roles)
        return is_lost or supervisor.all_ended() or self._any_error()

    def _any_error(self) -> bool:
        return self._cause is not None or bool(self._supervisor.errors())

    def _take_outcome(
        self,
        role: RoleId,
        incarnation: int,
        outcome: dict[str, Any] | BaseException,
        scheduler_loss: RoleFailedError | None,
    ) -> None:
        with self._changed:
            self._cause = self._cause or scheduler_loss
            if isinstance(outcome, BaseException):
                self._supervisor.fail(role, incarnation, outcome)
            else:
                self._supervisor.finish(role, incarnation, outcome)
            self._changed.notify_all()

    def _running(self) -> list[str]:
        return sorted(map(str, self._supervisor.running()))
