"""Calls functions on a cluster, each as one task of a cluster of roles; the first failure ends all of them."""

from __future__ import annotations

import concurrent.futures
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from distributed import Client

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.admission import AdmissionPolicy, admission_lock, free_slots, look
from psflow.ps_runtime.cluster.called_task import Surroundings, call_role
from psflow.ps_runtime.cluster.event_barrier import clear_events
from psflow.ps_runtime.cluster.host_addresses import is_of_this_machine, resolved
from psflow.ps_runtime.cluster.incarnations import FailureKind, MemberFailure, RoleChange, UserFault
from psflow.ps_runtime.cluster.role_records import RoleRecords
from psflow.ps_runtime.cluster.role_tasks import PROBE_TIMEOUT_SECS, SLICE_SECS, RoleTasks
from psflow.ps_runtime.cluster.scheduler_rpc import put
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ProtocolError, RoleLostError, UsageError
from psflow.ps_runtime.roles.events import Event, RoleEnded, RoleStarted
from psflow.ps_runtime.shipping.pickles import pickled
from psflow.ps_runtime.specs.roles import RoleId

ADMISSION_TIMEOUT_SECS = 60.0
POLL_SECS = 0.05
FREE_TIMEOUT_SECS = 0.5
"""For the processes of tasks that were just cancelled to be free."""
CLEAR_SECS = 3.0
"""For the scheduler to forget the events of the calls; a stopped one does not."""
LOOPBACK = ("127.0.0.1", "::1")
ALL_ARE_HERE = (
    "all Dask workers are on this machine; correct the address, or give the client of a cluster with one there"
)


@dataclass(frozen=True)
class RoleCall:
    """One function to call."""

    role: RoleId
    address: str
    function: Callable[[Surroundings], object]
    has_barrier: bool = False
    serves: bool = False


class CallRecords(RoleRecords):
    """The calls, each of one incarnation: a lost one has failed."""

    is_trained = False

    def can_do_without(self, role: RoleId) -> bool:
        """Return False: the caller waits for every function."""
        return False

    def place(self, role: RoleId, slot: str) -> int:
        """Record that a call is submitted."""
        self._records[role].change(RoleChange.PLACE)
        return self._placed(role, slot)

    def finish(self, role: RoleId, incarnation: int, report: Any) -> None:
        """Record that a function has returned."""
        self._records[role].change(RoleChange.RETURN)

    def fail(self, role: RoleId, incarnation: int, error: BaseException, fault: UserFault | None = None) -> None:
        """Record that a function has failed."""
        self._records[role].fail(error)

    def lose(self, failure: MemberFailure) -> None:
        """Record that a process hangs, or is gone, with its function unless that has returned."""
        record = self._records[failure.role]
        if record.current is None:
            return
        if failure.kind is FailureKind.HANG:
            record.current.hang = failure
            return
        first = record.current.first_failure(failure)
        remedy = "" if first.kind is FailureKind.OUT_OF_MEMORY else "; check its log, then start again"
        record.fail(RoleLostError(str(failure.role), first.reason + remedy))
        self.leave(failure.role, failure.incarnation)


class RoleCalls(RoleTasks):
    """Calls functions on a Dask cluster, for the duration of a ``with`` block: no task outlives it.

    Raises
    ------
    UsageError
        On entering: if a host has no free process for a task.
    WaitTimeoutError
        On entering: if a task does not begin, or the scheduler is silent for minutes.
    """

    def __init__(self, client: Client, calls: Sequence[RoleCall]) -> None:
        topic = f"psflow-calls-{secrets.token_hex(8)}"
        records = CallRecords([call.role for call in calls], first_incarnation=1)
        super().__init__(client, topic, records, lambda event: None, PROBE_TIMEOUT_SECS)
        self._calls = calls

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            with admission_lock(self._client, AdmissionPolicy(ADMISSION_TIMEOUT_SECS), never_stop):
                slots = self._find_slots()
                super().__enter__()
                stack.push(self.__exit__)
                for call in self._calls:
                    self._submit(call, slots[call.role])
                # the next admitted job must see these processes as taken
                self._await(
                    lambda: [role for role in slots if not self._records.has_started(role)], "start", never_stop
                )
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:  # the caller may not want to wait
            if self._client.status == "running":
                meeting = [call.role for call in self._calls if call.has_barrier]
                answer = put(self._client, lambda scheduler: clear_events(scheduler, self._futures.topic, meeting))
                concurrent.futures.wait([answer], CLEAR_SECS)
                answer.cancel()

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
        wanted, is_over = [call.role for call in self._calls if not call.serves], False
        while not is_over:
            self._look(never_stop)
            with self._changed:
                self._changed.wait_for(
                    lambda: all(map(self._records.has_ended, wanted)) or self._any_error(), SLICE_SECS
                )
                is_over = all(map(self._records.has_ended, wanted))
            self._raise_failure(never_stop)

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

    def _submit(self, call: RoleCall, slot: str) -> None:
        others = [one.role for one in self._calls if one.has_barrier and one.role != call.role]
        function = pickled(call.function, f"the function of {call.role}")
        with self._changed:
            incarnation = self._records.place(call.role, slot)
        self._futures.submit(call.role, incarnation, slot, call_role, function, others if call.has_barrier else None)

    def _look(self, check: Callable[[], None], *, has_lock: bool = False) -> None:
        self._membership.look()

    def _note(self, event: Event, role: RoleId) -> bool:
        if not isinstance(event, RoleStarted | RoleEnded):
            raise ProtocolError(event.role, f"a called function reports only its start and its end, but sent {event}")
        self._note_task(event, role)
        return False


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
