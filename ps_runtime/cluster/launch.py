"""A job on a cluster, as its owner sees it: start the roles, hear of them, wait for them, end them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from functools import partial
from types import TracebackType
from typing import Any, Self, assert_never
from urllib.parse import urlsplit

import cloudpickle
from distributed import Client, Future

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.admission import AdmissionPolicy, admission
from psflow.ps_runtime.cluster.failures import root_cause, scheduler_loss
from psflow.ps_runtime.cluster.presence import Presence
from psflow.ps_runtime.cluster.role_task import run_role
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
RESULT_TIMEOUT_SECS = 30.0
"""For fetching the report of a role that has ended."""
END_TIMEOUT_SECS = 3.0
"""For cancelled roles to end, or since a signal; they look at least four times a second."""
SETTLE_SECS = 1.0
"""After a first failure: how long to wait for the one that caused it."""
LIVES_PER_ATTEMPT = 1 << 16

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
        Takes the events of all roles, in the order of each role, in a thread of the Dask client; must not block.

    Notes
    -----
    `wait` may be called from any thread.
    """

    def __init__(self, client: Client, job: JobSpec, on_event: Callable[[Event], None]) -> None:
        self.job = job
        self._client = client
        self._on_event = on_event
        # opaque bytes: the scheduler need not know the user's modules, and pickling is done once
        self._pickled: bytes = cloudpickle.dumps(job)
        self._topic = f"psflow-{job.job_id}-{job.attempt}"
        self._changed = threading.Condition()
        self._futures: dict[RoleId, Future[Any]] = {}
        self._slots: dict[RoleId, str] = {}
        self._reports: dict[RoleId, dict[str, Any]] = {}
        self._errors: dict[RoleId, BaseException] = {}
        self._cause: RoleFailedError | None = None
        self._presence = Presence(client)
        self._vanished: set[str] = set()
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self._ps_addresses: dict[RoleId, Address] = {}

    def __enter__(self) -> Self:
        self._client.subscribe_topic(self._topic, self._take_event)
        self._client.subscribe_topic("all", self._take_cluster_event)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._futures:
            self._client.cancel(list(self._futures.values()), force=True)
        try:
            with self._changed:
                timeout_secs = min(END_TIMEOUT_SECS, stop_clock.left(ROLES_SECS))
                if not self._changed.wait_for(lambda: not self._running(), timeout_secs):
                    logger.warning("%s did not end within %.1f s", ", ".join(self._running()), timeout_secs)
        finally:  # somebody may not want to wait
            self._presence.close()
            self._client.unsubscribe_topic(self._topic)
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
            self.start_at(dict(zip(self.job.roles, slots, strict=True)), check)

    def start_at(self, slots: Mapping[RoleId, str], check: Callable[[], None] = never_stop) -> None:
        """Start each role at the address of a Dask worker, as `start` does. Blocks.

        Parameters
        ----------
        slots : mapping of RoleId to str
            Where each role of the job runs; nothing else may use these threads.
        check : callable
            Called at least once a second; raises to end the wait.

        Raises
        ------
        WaitTimeoutError
            If a role does not report.
        """
        self._slots = dict(slots)
        servers = [role for role in self.job.roles if role.role is Role.PS]
        for role in servers:
            self._submit(role)
        self._await(lambda: [role for role in servers if role not in self._ps_addresses], "start listening", check)
        for role in self.job.roles:
            if role not in self._futures:
                self._submit(role)
        self._await(lambda: [role for role in self.job.roles if str(role) not in self._started], "start", check)

    def wait(self, role: RoleId, timeout_secs: float) -> dict[str, Any] | None:
        """Wait for a role to end; return its report, or None if it is running still.

        Raises
        ------
        Exception
            What the role failed with; RoleFailedError if its process vanished.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended(role), timeout_secs)
            if not self._has_ended(role):
                return None
            error = self._error(role)
            if error is not None:
                raise error
            return self._reports[role]

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
            If the scheduler is silent for minutes.
        """
        while not self._all_ended():
            check()
            self._look()
            with self._changed:
                self._changed.wait_for(lambda: self._all_ended() or self._any_error(), SLICE_SECS)
            self._raise_failure(check)
        self._raise_failure(check)  # they may all have failed before the first look
        return {str(role): report for role, report in self._reports.items()}

    def root_cause(self) -> RoleFailedError:
        """Return what the job fails of, once a role has failed: the same each time. Blocks for a second at most.

        Of several errors it is the one that the others follow from, as far as those are known by then.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._cause is not None or self._all_ended(), SETTLE_SECS)
            if self._cause is None:
                self._cause = root_cause(
                    [(role, error) for role in self._slots if (error := self._error(role)) is not None]
                )
                self._changed.notify_all()
            return self._cause

    def _raise_failure(self, check: Callable[[], None]) -> None:
        """Raise what a role has failed with, unless `check` knows better: a signal may have ended the roles as well."""
        if self._any_error():
            cause = self.root_cause()
            check()
            raise cause

    def _submit(self, role: RoleId) -> None:
        job = self.job
        future = self._client.submit(
            run_role,
            self._pickled,
            role,
            job.attempt * LIVES_PER_ATTEMPT,
            self._topic,
            [self._ps_addresses[RoleId(Role.PS, i)] for i in range(job.num_ps)] if role.role is not Role.PS else [],
            is_alone=len({urlsplit(slot).hostname for slot in self._slots.values()}) == 1,
            key=f"psflow-{job.job_id}-{job.attempt}-{role}",
            pure=False,
            workers=[self._slots[role]],
            allow_other_workers=False,
            retries=0,
        )
        self._futures[role] = future
        future.add_done_callback(partial(self._take_outcome, role))

    def _take_event(self, stamped: tuple[float, Any]) -> None:
        """Note what an event says of the roles, and hand it on; the job fails of data that is no event of a role."""
        with self._changed:
            try:
                event = decode_event(stamped[1])
                self._note(event)
            except ProtocolError as error:
                self._cause = self._cause or RoleFailedError(error.peer, error.reason)
                return
            finally:
                self._changed.notify_all()
        self._on_event(event)

    def _note(self, event: Event) -> None:
        role = RoleId.parse(event.role)
        if role not in self.job.roles:
            raise ProtocolError(event.role, f"this job has no such role, but {event} came from it")
        match event:
            case RoleStarted():
                self._take_start(role)
            case RoleEnded():
                self._ended.add(event.role)
            case PsListening():
                self._ps_addresses[role] = event.address
            case Restored() | FirstStep() | Metrics() | SummaryFile() | Checkpoint() | Evaluation():
                pass
            case Export() | LogMessage():
                pass
            case _:
                assert_never(event)

    def _take_start(self, role: RoleId) -> None:
        """Note that a role has begun; if it does so again, its first life is lost, and what it knew with it."""
        if str(role) in self._started:
            self._errors.setdefault(role, RoleFailedError(str(role), "it was lost, and Dask started it again"))
        self._started.add(str(role))

    def _take_cluster_event(self, stamped: tuple[float, Any]) -> None:
        event = stamped[1]
        if isinstance(event, Mapping) and event.get("action") == "remove-worker":
            with self._changed:
                self._vanished.add(event["worker"])
                self._changed.notify_all()

    def _look(self) -> None:
        """Find out about Dask workers that have left and of which nobody has told."""
        gone = self._presence.missing({slot for role, slot in self._slots.items() if not self._has_ended(role)})
        if gone:
            with self._changed:
                self._vanished |= gone
                self._changed.notify_all()

    def _await(self, missing: Callable[[], list[RoleId]], action: str, check: Callable[[], None]) -> None:
        """Wait until `missing` returns no role that still has to do `action`; raise the failure of one that ends."""
        deadline = Deadline(START_TIMEOUT_SECS)
        while not deadline.has_passed:
            self._look()
            with self._changed:
                if self._changed.wait_for(lambda: not missing() or self._any_error(), SLICE_SECS) and not missing():
                    return
            check()
            self._raise_failure(check)
        if late := missing():
            raise WaitTimeoutError(", ".join(map(str, late)), action, START_TIMEOUT_SECS)

    def _all_ended(self) -> bool:
        return all(self._has_ended(role) for role in self._futures)

    def _any_error(self) -> bool:
        return self._cause is not None or any(self._error(role) is not None for role in self._slots)

    def _has_ended(self, role: RoleId) -> bool:
        return role in self._reports or self._error(role) is not None

    def _error(self, role: RoleId) -> BaseException | None:
        if role not in self._reports and role not in self._errors and self._slots[role] in self._vanished:
            return RoleFailedError(str(role), f"its Dask worker {self._slots[role]} was lost")
        return self._errors.get(role)

    def _take_outcome(self, role: RoleId, future: Future[Any]) -> None:
        """Fetch what a role ended with, in a thread of the Dask client's that may block."""
        report: dict[str, Any] = {}
        error: BaseException | None = None
        loss: RoleFailedError | None = None
        try:
            report = future.result(timeout=RESULT_TIMEOUT_SECS)
        except CancelledError as cancelled:
            error, loss = StoppedError(str(role), "it was cancelled"), scheduler_loss(self._client, cancelled)
        except Exception as failure:  # whatever the role, or user code in it, raised
            error = failure
        with self._changed:
            self._cause = self._cause or loss
            if error is None:
                self._reports[role] = report
            else:
                self._errors[role] = error
            self._changed.notify_all()

    def _running(self) -> list[str]:
        gone = {str(role) for role, slot in self._slots.items() if slot in self._vanished}
        return sorted(self._started - self._ended - gone)
