"""Finds the failures of a job's members: one poll of the scheduler, its events, and the nannies of silent processes.

Dask reports that a Dask worker is removed, but only once, and waits five minutes for one that hangs. Roles wait with a
deadline only for a worker.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from dask.utils import format_bytes
from distributed import Client
from distributed.scheduler import heartbeat_interval

from psflow.ps_runtime.cluster.connecting import is_own_cluster
from psflow.ps_runtime.cluster.heartbeats import Hang, HeartbeatTimeouts, heartbeat_of
from psflow.ps_runtime.cluster.incarnations import FailureKind, Member, MemberFailure
from psflow.ps_runtime.cluster.processor_use import WATCH_SECS, is_busy
from psflow.ps_runtime.cluster.role_records import RoleRecords
from psflow.ps_runtime.cluster.scheduler_rpc import SchedulerPoll
from psflow.ps_runtime.cluster.topics import subscribe, unsubscribe
from psflow.ps_runtime.specs.roles import Role, RoleId

POLL_SECS = 5.0
"""Between two questions to the scheduler."""
POLLS = 6
"""Minimum number of polls within the timeout of a heartbeat."""
MISSED = 4
"""Minimum number of heartbeats: in a cluster of thousands of Dask workers they come seconds apart."""
NANNY_SECS = 5.0
"""For a nanny to report the state of its process."""
END_SECS = 15.0
"""For a nanny to end its process; a stopped one it kills after 4 s."""
MEMORY_KILLS = "worker-restart-memory"
"""Topic of Dask's events: a nanny reports to the scheduler, then ends its process."""
KILL_SECS = 30.0
"""For the process to end. A process that ignores SIGTERM, as those of our own clusters do, continues if it uses less
memory at the next look of its nanny, a tenth of a second later; if it ends after that, the cause is another one.
"""

logger = logging.getLogger(__name__)


class Membership:
    """Records the failures of roles that run as tasks, from `open` to `close`.

    A member fails with its Dask worker, or if its process hangs, which its nanny then ends; a worker that hangs is only
    logged. A silent process is not always hanging: a library that computes for long without releasing Python's lock
    silences it, too. So the nanny checks whether the process uses a processor. If it does, psflow waits for it.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        records: RoleRecords,
        changed: threading.Condition,
        timeout_secs: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._topic = topic
        self._records = records
        self._changed = changed
        self._timeout_secs = timeout_secs
        self._clock = clock
        """That of the records."""
        self._poll = SchedulerPoll(client, self._question, min(POLL_SECS, timeout_secs / POLLS), clock=clock)
        self._workers: Mapping[str, Any] = {}
        """All Dask workers by address, as the last answer describes them."""
        self._polled_at = clock()
        self._timeouts = HeartbeatTimeouts()
        self._checks: dict[str, Future[None]] = {}
        """Of members that are silent, by the address of the Dask worker."""
        self._kills: dict[str, tuple[float, str]] = {}
        """Time and sentence of the last one, by the address of the Dask worker."""

    def open(self) -> None:
        """Subscribe to the events, which arrive in a thread of the Dask client."""
        subscribe(self._client, MEMORY_KILLS, self._take_kill)
        subscribe(self._client, "all", self._take_event)

    def look(self) -> None:
        """Record new failures. Does not block; to be called several times a second.

        Raises WaitTimeoutError if the scheduler is silent for minutes.
        """
        for slot in [slot for slot, check in self._checks.items() if check.done()]:
            _take(self._checks.pop(slot))
        if (answer := self._poll.look()) is None:
            return
        missing, self._workers = answer
        before, self._polled_at = self._polled_at, self._clock()
        self._remove(missing, FailureKind.LOST, since=before)
        # during a longer gap the owner observed nothing: it, or the scheduler, was stopped itself
        secs = min(self._polled_at - before, 2 * self._timeout_secs / POLLS)
        with self._changed:
            members, is_trained = self._records.running(), self._records.is_trained
        if is_trained:  # no role goes on without a worker any more
            members = [member for member in members if member.role.role is not Role.WORKER]
        known = {member: self._workers[member.slot] for member in members if member.slot in self._workers}
        heartbeats = {member: heartbeat_of(worker, self._topic, member) for member, worker in known.items()}
        timeout_secs = max(self._timeout_secs, MISSED * heartbeat_interval(len(self._workers)))
        for hang in self._timeouts.look(secs, heartbeats, timeout_secs):
            if hang.member.slot not in self._checks:
                loop: Any = self._client.loop
                check = self._end_hanging(hang, timeout_secs)
                self._checks[hang.member.slot] = asyncio.run_coroutine_threadsafe(check, loop.asyncio_loop)

    def close(self) -> None:
        """Unsubscribe, and wait for no answer. Idempotent."""
        self._poll.close()
        for check in self._checks.values():
            check.cancel()
        self._checks = {}
        unsubscribe(self._client, "all", self._take_event)
        unsubscribe(self._client, MEMORY_KILLS, self._take_kill)

    async def _question(self, scheduler: Any) -> tuple[list[Member], Mapping[str, Any]]:
        """Return the present members whose Dask workers the scheduler does not list, and all that it lists."""
        with self._changed:
            members = self._records.members()
        workers: Mapping[str, Any] = (await scheduler.identity(n_workers=-1))["workers"]
        return [member for member in members if member.slot not in workers], workers

    def _take_event(self, stamped: tuple[float, Any]) -> None:
        event = stamped[1]
        if isinstance(event, Mapping) and event.get("action") == "remove-worker":
            with self._changed:
                members = [member for member in self._records.members() if member.slot == event["worker"]]
            self._remove(members, FailureKind.CLOSED if event["expected"] else FailureKind.LOST, since=self._clock())

    def _take_kill(self, stamped: tuple[float, Any]) -> None:
        slot, rss_bytes = stamped[1]["worker"], stamped[1]["rss"]
        known = self._workers.get(slot)
        limit = "" if known is None else f" of its limit of {format_bytes(known['memory_limit'])}"
        what = f"the nanny of its Dask worker {slot} killed it at {format_bytes(rss_bytes)}{limit}"
        self._kills[slot] = self._clock(), what

    def _remove(self, members: Iterable[Member], kind: FailureKind, since: float) -> None:
        """Record that the Dask workers of members are gone, and why, as far as their nannies have reported it."""
        with self._changed:
            for role, incarnation, slot in members:
                killed_at, what = self._kills.get(slot, (float("-inf"), ""))
                if kind is FailureKind.LOST and self._clock() - killed_at <= KILL_SECS:
                    reason = f"{what}; {self._advice(role)}"
                    self._records.lose(MemberFailure(role, incarnation, FailureKind.OUT_OF_MEMORY, reason, killed_at))
                else:
                    self._records.lose(
                        MemberFailure(role, incarnation, kind, f"its Dask worker {slot} was {kind.value}", since)
                    )
            self._changed.notify_all()

    def _advice(self, role: RoleId) -> str:
        is_ps = role.role is Role.PS
        if is_own_cluster(self._client):
            less = "train on a cluster" if is_ps else "make batches smaller"
            return f"the processes share the memory of this machine equally: start fewer workers, or {less}"
        return f"raise memory_limit, or {'start more ps' if is_ps else 'make batches smaller'}"

    async def _end_hanging(self, hang: Hang, timeout_secs: float) -> None:
        """End an incarnation that hangs, unless its process computes, or the others can go on without it."""
        (role, incarnation, slot), since = hang.member, self._clock() - timeout_secs
        what = f"it did not {hang.what} for {timeout_secs:g} s"
        if await self._is_busy(hang):
            logger.warning("%s: %s, but its process computes, so psflow waits for it", role, what)
            return
        if self._records.can_do_without(role):
            line = "%s: %s; psflow does not end it, because the others can go on without it; its Dask worker is %s"
            logger.warning(line, role, what, slot)
            return
        reason = f"{what}, so its Dask worker {slot} was ended"
        with self._changed:
            if hang.member not in self._records.running():
                return
            self._records.lose(MemberFailure(role, incarnation, FailureKind.HANG, reason, since))
        scheduler: Any = self._client.scheduler
        # as the scheduler does after worker-ttl: it removes a worker without a nanny, or with a silent one
        await scheduler.restart_workers(
            workers=[slot],
            timeout=END_SECS,
            wait_for_workers=False,
            on_error="return",
            stimulus_id=f"psflow-hang-{role}-{incarnation}",
        )

    async def _is_busy(self, hang: Hang) -> bool:
        """Return whether the nanny of a Dask worker reports a computing process; False without a nanny."""
        slot = hang.member.slot
        asked: Any = self._client.run(is_busy, hang.what, workers=[slot], nanny=True, on_error="ignore")
        try:
            answers: dict[str, bool] = await asyncio.wait_for(asked, NANNY_SECS + WATCH_SECS)
        except (OSError, KeyError):  # KeyError: the Dask worker is gone by now
            return False
        return answers.get(slot, False)


def _take(check: Future[None]) -> None:
    """Take the result of a check; after a failure a role that still hangs is found again."""
    try:
        check.result()
    except Exception as error:  # any error of a nanny
        logger.warning("a Dask worker whose role hangs could not be ended, psflow tries again: %r", error)
