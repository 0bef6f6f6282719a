"""Reports lost and missing roles to ps-0, which then stops waiting for them, and to the owner of the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from distributed import Client

from psflow.ps_runtime.cluster.incarnations import Loss
from psflow.ps_runtime.cluster.loss_messages import LossMessages
from psflow.ps_runtime.cluster.missing_workers import num_missing
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.protocol.message import Incarnation
from psflow.ps_runtime.roles.events import RoleLost, WorkersMissing
from psflow.ps_runtime.specs.roles import Role, RoleId

PS_0 = RoleId(Role.PS, 0)


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
        self._messages = LossMessages(client, topic)
        self._roles = roles
        self._num_workers = sum(role.role is Role.WORKER for role in roles)
        self._supervisor = supervisor
        self._on_event = on_event
        self._num_reported = Counter[RoleId]()
        self._reported_missing: set[tuple[RoleId, int, int]] = set()
        self._num_missing = 0

    def has_news(self) -> bool:
        """Return whether there is an unreported loss."""
        return any(len(self._supervisor.losses(role)) > self._num_reported[role] for role in self._roles)

    def report(self) -> None:
        """Report what is new. Does not block."""
        with self._supervisor.lock:
            incarnations, events = list[Incarnation](), list[RoleLost | WorkersMissing]()
            for role, loss in self._unreported():
                if _concerns_ps_0(role, loss):  # a graceful shutdown may have ended before the role could report it
                    incarnations.append((role.replica, loss.incarnation))
                if not self._supervisor.has_ended(role):
                    reason = loss.error.error
                    events.append(RoleLost(reason, loss.rolls_back, role=str(role), incarnation=loss.incarnation))
            incarnations += self._missing()
            if (now := num_missing(self._supervisor)) != self._num_missing:
                self._num_missing = now
                events.append(WorkersMissing(now, self._num_workers))
            slot = self._supervisor.slots().get(PS_0)
        if slot is not None:
            for incarnation in incarnations:
                self._messages.send(slot, incarnation)
        for event in events:
            self._on_event(event)

    def close(self) -> None:
        """Cancel messages under way. Idempotent."""
        self._messages.close()

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


def _concerns_ps_0(role: RoleId, loss: Loss) -> bool:
    """Return whether ps-0 is alive, and has given a lost role tickets."""
    return role.trains and not loss.rolls_back
