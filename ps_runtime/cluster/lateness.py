"""The roles of a job that take too long for what they are to do next. No clock but the one that is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from psflow.ps_runtime.cluster.incarnations import RoleState
from psflow.ps_runtime.specs.roles import Role, RoleId

SAVING = (Role.PS, Role.CHIEF)
"""The roles that make checkpoints: no training goes on without one of them."""


class Lateness:
    """Answers which roles take too long."""

    def __init__(self, states: Mapping[RoleId, RoleState], clock: Callable[[], float]) -> None:
        self._states = states
        self._clock = clock

    def of(self, roles: Iterable[RoleId], timeout_secs: float) -> list[RoleId]:
        """Return those of `roles` whose present life was placed so long ago."""
        lives = [(role, self._states[role].life) for role in roles]
        return [role for role, life in lives if life is not None and self._clock() - life.placed_at >= timeout_secs]

    def to_start(self, timeout_secs: float) -> list[RoleId]:
        """Return those whose present life is a later one, was placed so long ago, and has not started."""
        later = {role: s.life for role, s in self._states.items() if s.is_later and not s.has_ended}
        return self.of([role for role, life in later.items() if life and not life.has_started], timeout_secs)

    def to_leave(self, timeout_secs: float) -> list[RoleId]:
        """Return the ps and the chief if they were recalled so long ago, and have not left."""
        saving = [(role, s.life) for role, s in self._states.items() if role.role in SAVING and not s.has_ended]
        recalled = [(role, life.recalled_at) for role, life in saving if life and life.recalled_at is not None]
        return [role for role, at in recalled if self._clock() - at >= timeout_secs]

    def to_listen(self, timeout_secs: float) -> list[RoleId]:
        """Return the ps whose present life was placed so long ago, has started, and cannot be reached yet."""
        states = [(role, s) for role, s in self._states.items() if role.role is Role.PS and not s.has_ended]
        lives = [(role, s.life) for role, s in states if s.life is not None and not s.is_recalled]
        return self.of([r for r, life in lives if life.has_started and not life.is_listening], timeout_secs)
