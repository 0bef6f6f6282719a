"""Finds roles that exceed the time limit of their next action, by a given clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from psflow.ps_runtime.cluster.incarnations import RoleState
from psflow.ps_runtime.specs.roles import Role, RoleId

SAVING = (Role.PS, Role.CHIEF)
"""The roles that write checkpoints: training does not continue without one of them."""


class OverdueRoles:
    """Finds roles that exceed a time limit."""

    def __init__(self, states: Mapping[RoleId, RoleState], clock: Callable[[], float]) -> None:
        self._states = states
        self._clock = clock

    def of(self, roles: Iterable[RoleId], timeout_secs: float) -> list[RoleId]:
        """Return those of `roles` whose present incarnation was placed `timeout_secs` ago or earlier."""
        incarnations = [(role, self._states[role].current) for role in roles]
        return [
            role
            for role, current in incarnations
            if current is not None and self._clock() - current.placed_at >= timeout_secs
        ]

    def to_start(self, timeout_secs: float) -> list[RoleId]:
        """Return the roles whose present incarnation is a later one, and has not started within the limit."""
        later = {role: s.current for role, s in self._states.items() if s.is_later and not s.has_ended}
        return self.of([role for role, current in later.items() if current and not current.has_started], timeout_secs)

    def to_leave(self, timeout_secs: float) -> list[RoleId]:
        """Return the ps and the chief if they have not left within the limit after a rollback."""
        saving = [(role, s.current) for role, s in self._states.items() if role.role in SAVING and not s.has_ended]
        rolled_back = [
            (role, current.rolled_back_at) for role, current in saving if current and current.rolled_back_at is not None
        ]
        return [role for role, at in rolled_back if self._clock() - at >= timeout_secs]

    def to_listen(self, timeout_secs: float) -> list[RoleId]:
        """Return the ps that have started, but do not listen within the limit after being placed."""
        states = [(role, s) for role, s in self._states.items() if role.role is Role.PS and not s.has_ended]
        incarnations = [(role, s.current) for role, s in states if s.current is not None and not s.is_rolled_back]
        return self.of(
            [r for r, current in incarnations if current.has_started and not current.is_listening], timeout_secs
        )
