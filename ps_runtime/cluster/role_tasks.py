"""Runs roles as Dask tasks for their owner: takes their events and outcomes, finds who fails, and ends them."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, assert_never

from distributed import Client

from psflow.ps_runtime.cluster.failures import root_cause, user_fault
from psflow.ps_runtime.cluster.membership import Membership
from psflow.ps_runtime.cluster.role_futures import RoleFutures
from psflow.ps_runtime.cluster.role_records import RoleRecords
from psflow.ps_runtime.cluster.role_timeouts import START_TIMEOUT_SECS, late_start
from psflow.ps_runtime.cluster.topics import subscribe, unsubscribe
from psflow.ps_runtime.deadline import ROLES_SECS, stop_clock
from psflow.ps_runtime.errors import ProtocolError, RoleFailedError
from psflow.ps_runtime.roles.event_codec import decode_event
from psflow.ps_runtime.roles.events import Event, RoleEnded, RoleStarted
from psflow.ps_runtime.specs.roles import RoleId

SLICE_SECS = 0.2
END_TIMEOUT_SECS = 3.0
"""For cancelled roles to end, or since a signal; they check at least four times a second."""
SETTLE_SECS = 1.0
"""After a first failure: how long to wait for the failure that caused it."""
PROBE_TIMEOUT_SECS = 30.0
"""Default limit for a silent role; replicas give up a ps after 60 s."""

logger = logging.getLogger(__name__)


class RoleTasks(ABC):
    """Runs roles for the duration of a ``with`` block: no role outlives it.

    Notes
    -----
    `error` and `root_cause` may be called from any thread.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        records: RoleRecords,
        on_event: Callable[[Event], None],
        timeout_secs: float,
    ) -> None:
        self._client = client
        self._records = records
        self._on_event = on_event
        self._changed = threading.Condition(records.lock)
        self._futures = RoleFutures(client, topic, self._take_outcome)
        self._membership = Membership(client, topic, records, self._changed, timeout_secs)
        self._cause: RoleFailedError | None = None

    def __enter__(self) -> Self:
        subscribe(self._client, self._futures.topic, self._take_event)
        self._membership.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._futures.cancel_all()
            with self._changed:
                timeout_secs = min(END_TIMEOUT_SECS, stop_clock.left(ROLES_SECS))
                is_heard = self._client.status == "running"  # without the scheduler no end is reported
                if is_heard and not self._changed.wait_for(lambda: not self._running(), timeout_secs):
                    logger.warning("%s did not end within %.1f s", ", ".join(self._running()), timeout_secs)
        finally:  # the caller may not want to wait
            self._close()

    def _close(self) -> None:
        """Hear of the cluster no more."""
        self._membership.close()
        unsubscribe(self._client, self._futures.topic, self._take_event)

    def error(self, role: RoleId) -> BaseException | None:
        """Return what a role has failed with, in any of its incarnations."""
        with self._changed:
            return self._records.error(role)

    def root_cause(self) -> RoleFailedError:
        """Return the error of the job, once a role has failed: always the same. Blocks for a second at most.

        Of several errors it is the one that caused the others, as far as these are known by then.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._cause is not None or self._records.all_ended(), SETTLE_SECS)
            if self._cause is None:
                self._cause = root_cause(self._records.errors())
                self._changed.notify_all()
            return self._cause

    @abstractmethod
    def _look(self, check: Callable[[], None], *, has_lock: bool = False) -> None:
        """Detect losses, and do what follows from them; to be called several times a second."""

    @abstractmethod
    def _note(self, event: Event, role: RoleId) -> bool:
        """Record an event; return whether to pass it on."""

    def _note_task(self, event: RoleStarted | RoleEnded, role: RoleId) -> None:
        match event:
            case RoleStarted():
                self._records.start(role, event.incarnation)
            case RoleEnded():
                self._records.leave(role, event.incarnation)
            case unknown:
                assert_never(unknown)

    def _raise_failure(self, check: Callable[[], None]) -> None:
        """Raise the failure of a role, unless `check` raises first: a signal may have ended the roles as well."""
        with self._changed:
            has_failed = self._any_error()
        if has_failed:
            cause = self.root_cause()
            check()
            raise cause

    def _await(self, missing: Callable[[], list[RoleId]], action: str, check: Callable[[], None]) -> None:
        """Wait until `missing` returns no role that still has to do `action`; raise the failure of a role that ends."""
        while True:
            self._look(check, has_lock=True)
            with self._changed:
                if self._changed.wait_for(lambda: not missing() or self._any_error(), SLICE_SECS) and not missing():
                    return
                slots = self._records.slots()  # a role without a slot may wait for one
                late = self._records.late(slots.keys() & missing(), START_TIMEOUT_SECS)
            check()
            self._raise_failure(check)
            if late:
                raise late_start(late, slots, action, START_TIMEOUT_SECS)

    def _take_event(self, stamped: tuple[float, Any]) -> None:
        """Record an event, and pass it on; the job fails if the data is not an event of a role."""
        with self._changed:
            try:
                event = decode_event(stamped[1])
                if not self._note(event, self._role_of(event)):
                    return
            except ProtocolError as error:
                self._cause = self._cause or RoleFailedError(error.peer, error.reason)
                return
            finally:
                self._changed.notify_all()
        self._on_event(event)

    def _role_of(self, event: Event) -> RoleId:
        try:
            role = RoleId.parse(event.role)
            self._records.has_ended(role)
        except (KeyError, ValueError):
            raise ProtocolError(event.role, f"this job has no such role, but {event} came from it") from None
        return role

    def _any_error(self) -> bool:
        return self._cause is not None or bool(self._records.errors())

    def _take_outcome(
        self, role: RoleId, incarnation: int, outcome: Any, scheduler_loss: RoleFailedError | None
    ) -> None:
        with self._changed:
            self._cause = self._cause or scheduler_loss
            if isinstance(outcome, BaseException):
                self._records.fail(role, incarnation, outcome, user_fault(outcome))
            else:
                self._records.finish(role, incarnation, outcome)
            self._changed.notify_all()

    def _running(self) -> list[str]:
        return sorted(str(member.role) for member in self._records.running())
