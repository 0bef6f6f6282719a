"""Reports lost and missing roles to ps-0, which then stops waiting for them, and to the owner of the job."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from distributed import Client

from psflow.ps_runtime.cluster.incarnations import Loss
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.protocol.message import Incarnation
from psflow.ps_runtime.roles.events import RoleLost, WorkersMissing
from psflow.ps_runtime.specs.roles import Role, RoleId

PS_0 = RoleId(Role.PS, 0)

_inboxes: dict[str, SimpleQueue[Incarnation]] = {}
"""Of the ps-0 that run in this process, by the topic of their job's events."""


class LossReports:
    """Reports each loss once, the number of missing workers, and to a new ps-0 the roles that it would wait for."""

    def __init__(
        self,
        client: Client,
        topic: str,
        roles: Sequence[RoleId],
        supervisor: Supervisor,
        on_event: Callable[[RoleLost | WorkersMissing], None],
    ) -> None:
        self._client = client
        self._topic = topic
        self._roles = roles
        self._supervisor = supervisor
        self._on_event = on_event
        self._num_reported = Counter[RoleId]()
        self._reported_missing: set[tuple[RoleId, int, int]] = set()
        self._num_missing = 0
        self._under_way: set[Future[None]] = set()
        """Messages to ps-0: nobody waits for them, since Dask tries for half a minute to reach a lost one."""

    def has_news(self) -> bool:
        """Return whether there is an unreported loss."""
        return any(len(self._supervisor.losses(role)) > self._num_reported[role] for role in self._roles)

    def report(self) -> None:
        """Report what is new. Does not block."""
        with self._supervisor.lock:
            incarnations, events = list[Incarnation](), list[RoleLost | WorkersMissing]()
            for role, loss in self._unreported():
                if role.trains and not loss.rolls_back:  # ps-0 is there, and has given the role tickets;
                    # a graceful shutdown may have ended before the role could report it
                    incarnations.append((role.replica, loss.incarnation))
                if not self._supervisor.has_ended(role) and self._supervisor.is_wanted(role):
                    reason = loss.error.error
                    events.append(RoleLost(reason, loss.rolls_back, role=str(role), incarnation=loss.incarnation))
            incarnations += self._missing()
            if (now := len(self._supervisor.missing())) != self._num_missing:
                self._num_missing = now
                events.append(WorkersMissing(now, self._supervisor.num_expected))
            slot = self._supervisor.slots().get(PS_0)
        if slot is not None:
            for incarnation in incarnations:
                self._send(slot, incarnation)
        for event in events:
            self._on_event(event)

    def close(self) -> None:
        """Cancel messages under way. Idempotent."""
        for message in list(self._under_way):
            message.cancel()

    def _unreported(self) -> Iterator[tuple[RoleId, Loss]]:
        for role in self._roles:
            if self._supervisor.error(role) is not None:
                continue
            for loss in self._supervisor.losses(role)[self._num_reported[role] :]:
                self._num_reported[role] += 1
                if not loss.is_rollback:
                    yield role, loss

    def _missing(self) -> Iterator[Incarnation]:
        """Yield workers that find no slot, or do not end: a new ps-0 would wait for their updates."""
        for role, incarnation in self._supervisor.missing_workers():
            report = (role, incarnation, len(self._supervisor.losses(PS_0)))
            if report not in self._reported_missing:
                self._reported_missing.add(report)
                yield role.replica, incarnation

    def _send(self, slot: str, incarnation: Incarnation) -> None:
        """Send a message to ps-0. Does not block; a ps that is gone gets nothing."""
        loop: Any = self._client.loop
        message = asyncio.run_coroutine_threadsafe(self._message(slot, incarnation), loop.asyncio_loop)
        self._under_way.add(message)
        message.add_done_callback(self._under_way.discard)

    async def _message(self, slot: str, incarnation: Incarnation) -> None:
        with suppress(OSError):  # the connection to the scheduler breaks: the owner detects that by other means
            await self._client._run(take_loss, self._topic, incarnation, workers=[slot], wait=False, on_error="ignore")


async def take_loss(topic: str, incarnation: Incarnation) -> None:
    """Pass a message to the ps of a job, if it runs in this process. Dask does not await coroutines here."""
    if (inbox := _inboxes.get(topic)) is not None:
        inbox.put(incarnation)


@contextmanager
def receiving(topic: str, inbox: SimpleQueue[Incarnation]) -> Iterator[None]:
    """Deliver the messages for the ps-0 of a job to `inbox` while the block lasts."""
    _inboxes[topic] = inbox
    try:
        yield
    finally:
        del _inboxes[topic]
