"""Finds roles that exceed the time limit of their next action, by a given clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from psflow.ps_runtime.cluster.incarnations import RoleIncarnation, RoleRecord, RoleState, TaskProgress
from psflow.ps_runtime.specs.roles import Role, RoleId

SAVING = (Role.PS, Role.CHIEF)
"""The roles that write checkpoints: training does not continue without one of them."""


class OverdueRoles:
    """Finds roles that exceed a time limit."""

    def __init__(self, records: Mapping[RoleId, RoleRecord], clock: Callable[[], float]) -> None:
        self._records = records
        self._clock = clock

    def of(self, roles: Iterable[RoleId], timeout_secs: float) -> list[RoleId]:
        """Return those of `roles` whose present incarnation was placed `timeout_secs` ago or earlier."""
        incarnations = [(role, self._records[role].current) for role in roles]
        return [
            role
            for role, current in incarnations
            if current is not None and self._clock() - current.placed_at >= timeout_secs
        ]

    def to_start(self, timeout_secs: float) -> list[RoleId]:
        """Return the roles whose present incarnation is a later one, and has not started within the limit."""
        later = {role: r.current for role, r in self._records.items() if r.is_later and not r.has_ended}
        return self.of([role for role, current in later.items() if current and not _has_started(current)], timeout_secs)

    def to_leave(self, timeout_secs: float) -> list[RoleId]:
        """Return the ps and the chief if they have not left within the limit after they were recalled."""
        recalled = [(role, r) for role, r in self._records.items() if r.state is RoleState.RECALLED]
        saving = [(role, r.current) for role, r in recalled if role.role in SAVING and r.current is not None]
        return [role for role, current in saving if self._clock() - current.recalled_at >= timeout_secs]

    def to_listen(self, timeout_secs: float) -> list[RoleId]:
        """Return the ps that have started, but do not listen within the limit after being placed."""
        servers = {role: r for role, r in self._records.items() if role.role is Role.PS}
        silent = [
            role
            for role, r in servers.items()
            if r.state is RoleState.PLACED and not r.can_be_reached and r.current and _has_started(r.current)
        ]
        return self.of(silent, timeout_secs)


def _has_started(current: RoleIncarnation) -> bool:
    return current.progress is not TaskProgress.SUBMITTED
