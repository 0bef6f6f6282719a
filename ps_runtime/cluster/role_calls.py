"""Calls functions on a cluster, each as one task of a cluster of roles; the first failure ends all of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from distributed import Client, Future, wait

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.admission import AdmissionPolicy, admission_lock, free_slots, look
from psflow.ps_runtime.cluster.call_events import OPEN, call_event, ended, event_name, returned, running, started
from psflow.ps_runtime.cluster.called_task import Surroundings, call_role
from psflow.ps_runtime.cluster.event_barrier import arrivals
from psflow.ps_runtime.cluster.failures import root_cause, scheduler_loss
from psflow.ps_runtime.cluster.host_addresses import is_of_this_machine, resolved
from psflow.ps_runtime.cluster.memory_kills import MemoryKills
from psflow.ps_runtime.cluster.presence import Presence
from psflow.ps_runtime.cluster.scheduler_rpc import put
from psflow.ps_runtime.deadline import ROLES_SECS, Deadline, stop_clock
from psflow.ps_runtime.errors import RoleLostError, StoppedError, UsageError, WaitTimeoutError
from psflow.ps_runtime.shipping.pickles import pickled
from psflow.ps_runtime.specs.roles import RoleId

ADMISSION_TIMEOUT_SECS = 60.0
START_TIMEOUT_SECS = 60.0
"""For a submitted task to begin; its process runs already."""
RESULT_TIMEOUT_SECS = 30.0
"""For fetching the error of a task."""
SLICE_SECS = 0.2
POLL_SECS = 0.05
FREE_TIMEOUT_SECS = 0.5
"""For the processes of tasks that were just cancelled to be free."""
SETTLE_SECS = 1.0
"""After a first failure: how long to wait for the failure that caused it."""
END_TIMEOUT_SECS = 3.0
"""For cancelled tasks to end; those of psflow check at least four times a second."""
ANSWER_SECS = 3.0
"""For the scheduler to report these ends; a stopped one does not."""
LOOPBACK = ("127.0.0.1", "::1")
ALL_ARE_HERE = (
    "all Dask workers are on this machine; correct the address, or give the client of a cluster with one there"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoleCall:
    """One function to call."""

    role: RoleId
    address: str
    function: Callable[[Surroundings], object]
    has_barrier: bool = False
    serves: bool = False


class RoleCalls:
    """Calls functions on a Dask cluster, for the duration of a ``with`` block: no task outlives it.

    Raises
    ------
    UsageError
        On entering: if a host has no free process for a task.
    WaitTimeoutError
        On entering: if a task does not begin, or the scheduler is silent for minutes.
    """

    def __init__(self, client: Client, calls: Sequence[RoleCall]) -> None:
        self._client = client
        self._calls = calls
        self._topic = f"psflow-calls-{secrets.token_hex(8)}"
        self._event = partial(call_event, client, self._topic, never_stop)
        self._futures: dict[RoleId, Future[Any]] = {}
        self._slots: dict[RoleId, str] = {}
        self._lost: set[RoleId] = set()
        self._returned: set[RoleId] = set()
        """Dask forgets the outcomes of these tasks when their processes end."""
        self._presence = Presence(client)
        self._memory_kills = MemoryKills(client, self._presence)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            with admission_lock(self._client, AdmissionPolicy(ADMISSION_TIMEOUT_SECS), never_stop):
                self._slots = self._find_slots()
                stack.callback(self._leave)  # the caller may not want to wait
                self._memory_kills.open()
                self._event(OPEN).set()
                for call in self._calls:
                    self._submit(call)
                self._await_start()  # the next admitted job must see these processes as taken
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        """Cancel all tasks, and wait for their end for seconds at most; an interruption leaves them cancelled."""
        try:
            if self._client.status == "running":
                futures = list(self._futures.values())
                put(self._client, lambda scheduler: self._client.cancel(futures, force=True))
                self._await_end()
        finally:
            self._presence.close()
            self._memory_kills.close()

    def join(self) -> None:
        """Wait until all tasks have ended, except those that only serve. Blocks.

        Raises
        ------
        RoleFailedError
            If a task has failed: of several errors the one that caused the others. A RoleLostError if its process
            is gone before its function has returned.
        WaitTimeoutError
            If the scheduler is silent for minutes.
        """
        wanted = [call.role for call in self._calls if not call.serves]
        while not self._has_failure():
            pending = [self._futures[role] for role in wanted if role not in self._returned]
            if not pending:
                return
            self._check_lost()
            with contextlib.suppress(TimeoutError, CancelledError):
                wait(pending, timeout=SLICE_SECS, return_when="FIRST_COMPLETED")
        with contextlib.suppress(TimeoutError, CancelledError):
            wait(list(self._futures.values()), timeout=SETTLE_SECS)
        raise root_cause([(role, failure) for role in self._futures if (failure := self._failure(role)) is not None])

    def _find_slots(self) -> dict[RoleId, str]:
        """Return a free process for each call; the scheduler may need a moment to release cancelled tasks."""
        deadline = Deadline(FREE_TIMEOUT_SECS)
        while True:
            try:
                return _slots_at(self._client, self._calls)
            except UsageError:
                if deadline.has_passed:
                    raise
            time.sleep(POLL_SECS)

    def _submit(self, call: RoleCall) -> None:
        others = [one.role for one in self._calls if one.has_barrier and one.role != call.role]
        self._futures[call.role] = self._client.submit(
            call_role,
            pickled(call.function, f"the function of {call.role}"),
            call.role,
            self._topic,
            others if call.has_barrier else None,
            key=f"{self._topic}-{call.role}",
            pure=False,
            workers=[self._slots[call.role]],
            allow_other_workers=False,
            retries=0,
        )

    def _has_failure(self) -> bool:
        """Return whether a function has failed; remember those that have returned."""
        statuses = {role: future.status for role, future in self._futures.items()}
        self._returned |= {role for role, status in statuses.items() if status in ("finished", "lost")}
        return any(statuses[role] in ("error", "cancelled") for role in statuses.keys() - self._returned)

    def _failure(self, role: RoleId) -> BaseException | None:
        future = self._futures[role]
        if role in self._returned or not future.done():
            return None
        try:
            error: BaseException | None = future.exception(timeout=RESULT_TIMEOUT_SECS)
        except CancelledError as cancelled:
            error = scheduler_loss(self._client, cancelled) or StoppedError(str(role), "its Dask task was cancelled")
        return error

    def _check_lost(self) -> None:
        gone = self._presence.missing(set(self._slots.values()))
        away = {role for role, slot in self._slots.items() if slot in gone and not self._futures[role].done()}
        self._returned |= {role for role in away - self._returned if self._event(returned(role)).is_set()}
        self._lost |= away - self._returned
        if self._lost:
            role = min(self._lost, key=str)
            why = self._memory_kills.reasons(self._slots).get(role)
            raise RoleLostError(
                str(role), why or f"its Dask worker {self._slots[role]} is gone; check its log, then start again"
            )

    def _await_start(self) -> None:
        """Wait until all tasks have begun, or one has failed."""
        deadline = Deadline(START_TIMEOUT_SECS)
        missing = [call.role for call in self._calls]
        while missing and not self._has_failure():
            self._check_lost()
            if deadline.has_passed:
                late = ", ".join(sorted(map(str, missing)))
                slots = ", ".join(sorted(self._slots[role] for role in missing))
                detail = f"its Dask worker, {slots}, hangs or is busy with something else"
                raise WaitTimeoutError(late, "begin", deadline.timeout_secs, detail)
            if self._event(started(missing[0])).wait(min(SLICE_SECS, deadline.remaining_secs)):
                missing.pop(0)

    def _await_end(self) -> None:
        """Wait until no task runs, and remove all events."""
        deadline = Deadline(min(END_TIMEOUT_SECS, stop_clock.left(ROLES_SECS)))
        answer = put(self._client, partial(self._ended, deadline))
        try:
            if not concurrent.futures.wait([answer], deadline.timeout_secs + ANSWER_SECS).done:
                names = ", ".join(map(str, self._futures))
                logger.warning("the Dask scheduler does not answer, so psflow does not know whether %s ended", names)
                return
        finally:
            answer.cancel()
        with contextlib.suppress(OSError, CancelledError):  # without the scheduler there is no event to remove
            if late := answer.result():
                logger.warning("%s did not end within %.1f s", ", ".join(late), deadline.timeout_secs)

    async def _ended(self, deadline: Deadline, scheduler: Any) -> list[str]:
        """Return the calls that do not end in time, once all events are removed."""
        name = partial(event_name, self._topic)
        await scheduler.event_clear(name=name(OPEN))
        late = []
        for role in self._futures.keys() - self._lost - self._returned:
            while await scheduler.event_is_set(name=name(running(role))):
                if deadline.has_passed:
                    late.append(str(role))
                    break
                await asyncio.sleep(min(POLL_SECS, deadline.remaining_secs))
        for role in self._futures:
            for event in (running(role), started(role), returned(role), ended(role), *arrivals(role)):
                await scheduler.event_clear(name=name(event))
        return late


def _slots_at(client: Client, calls: Sequence[RoleCall]) -> dict[RoleId, str]:
    """Return for each call its own idle Dask worker, on the host of the call."""
    workers, processing = look(client)
    free = [slot for slot in dict.fromkeys(free_slots(workers, processing)) if not processing.get(slot)]
    are_here = all(urlsplit(slot).hostname in LOOPBACK for slot in workers)
    found: dict[RoleId, str] = {}
    faults = []
    for call in calls:
        host = _host(call)
        is_here = are_here and is_of_this_machine(host)
        slot = next((slot for slot in free if is_here or urlsplit(slot).hostname == host), None)
        if slot is None:
            remedy = ALL_ARE_HERE if are_here and not is_here else "start it there, or correct the address"
            faults.append(
                f"{call.role} is at {call.address}, and no free Dask worker is on that host: each task needs one "
                f"of its own; {remedy}"
            )
        else:
            free.remove(slot)
            found[call.role] = slot
    if faults:
        raise UsageError(tuple(faults))
    return found


def _host(call: RoleCall) -> str:
    try:
        return resolved(call.address)[0]
    except OSError as error:
        raise UsageError((f"{call.role} is at {call.address}, but that host cannot be resolved: {error}",)) from None
