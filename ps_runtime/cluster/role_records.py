"""Records the incarnations of the roles that run as tasks: which one is present, how far it is, and how it ended."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from psflow.ps_runtime.cluster.incarnations import (
    FailureKind,
    Member,
    MemberFailure,
    RoleIncarnation,
    RoleRecord,
    RoleState,
    TaskProgress,
    UserFault,
)
from psflow.ps_runtime.specs.roles import RoleId


class RoleRecords(ABC):
    """All incarnations of some roles.

    Notes
    -----
    Not thread-safe by itself: hold `lock`. Events of an incarnation that is over, or not yet placed, do nothing.
    """

    def __init__(self, roles: Iterable[RoleId], first_incarnation: int, clock: Callable[[], float] = time.monotonic):
        self.lock = threading.RLock()
        self._records = {role: RoleRecord() for role in roles}
        self._first_incarnation = first_incarnation
        self._clock = clock

    # Events

    @abstractmethod
    def place(self, role: RoleId, slot: str) -> int:
        """Record that an incarnation of `role` is placed on the Dask worker at `slot`; return its number."""

    def start(self, role: RoleId, incarnation: int) -> None:
        """Record that an incarnation has started; a second start means that Dask has restarted it: it is lost."""
        current = self._current(role, incarnation)
        if current is not None and current.progress is TaskProgress.SUBMITTED:
            current.progress = TaskProgress.STARTED
        elif current is not None:
            again = "it was lost, and Dask started it again"
            self.lose(MemberFailure(role, incarnation, FailureKind.LOST, again, self._clock()))

    def leave(self, role: RoleId, incarnation: int) -> None:
        """Record that an incarnation no longer runs; `finish` or `fail` records how it has ended."""
        if (current := self._current(role, incarnation)) is not None:
            current.progress = TaskProgress.LEFT

    @abstractmethod
    def finish(self, role: RoleId, incarnation: int, report: Any) -> None:
        """Record that an incarnation has ended without an error, and its report."""

    @abstractmethod
    def fail(self, role: RoleId, incarnation: int, error: BaseException, fault: UserFault | None = None) -> None:
        """Record that an incarnation ended with an error, and the `fault` if the error is of user code."""

    @abstractmethod
    def lose(self, failure: MemberFailure) -> None:
        """Record that an incarnation is gone with its Dask worker, or hangs, so that its Dask worker will be ended."""

    # Queries

    @property
    @abstractmethod
    def is_trained(self) -> bool:
        """Whether the chief has completed training: no other role that trains is needed any more."""

    @abstractmethod
    def can_do_without(self, role: RoleId) -> bool:
        """Return whether the others go on without a role that hangs."""

    def is_current(self, role: RoleId, incarnation: int) -> bool:
        """Return whether an incarnation is the present one of its role."""
        return self._current(role, incarnation) is not None

    def has_started(self, role: RoleId) -> bool:
        """Return whether any incarnation of a role has started."""
        return self._records[role].has_started

    def has_ended(self, role: RoleId) -> bool:
        """Return whether a role has ended for good, with or without an error."""
        return self._records[role].has_ended

    def all_ended(self) -> bool:
        """Return whether all roles have ended that were ever placed, or unplaced at the start."""
        return all(record.has_ended or record.state is RoleState.ABSENT for record in self._records.values())

    def error(self, role: RoleId) -> BaseException | None:
        """Return what a role has failed with."""
        return self._records[role].error

    def errors(self) -> list[tuple[RoleId, BaseException]]:
        """Return what roles have failed with, in the order of the roles."""
        return [(role, record.error) for role, record in self._records.items() if record.error is not None]

    def slots(self) -> dict[RoleId, str]:
        """Return the Dask workers of the incarnations that have not ended."""
        return {role: r.current.slot for role, r in self._records.items() if r.current is not None and not r.has_ended}

    def members(self, *progress: TaskProgress) -> list[Member]:
        """Return the present incarnations, or those of them that are so far, whether or not their outcome is known."""
        incarnations = [(role, record.current) for role, record in self._records.items() if record.current is not None]
        wanted = progress or tuple(TaskProgress)
        return [Member(role, one.incarnation, one.slot) for role, one in incarnations if one.progress in wanted]

    def running(self) -> list[Member]:
        """Return the incarnations that have started and not left."""
        return self.members(TaskProgress.STARTED)

    def late(self, roles: Iterable[RoleId], timeout_secs: float) -> list[RoleId]:
        """Return those of `roles` whose present incarnation was placed `timeout_secs` ago or earlier."""
        incarnations = [(role, self._records[role].current) for role in roles]
        return [role for role, one in incarnations if one is not None and self._clock() - one.placed_at >= timeout_secs]

    def _in(self, *states: RoleState) -> list[RoleId]:
        """Return the roles in any of these states."""
        return [role for role, record in self._records.items() if record.state in states]

    def _current(self, role: RoleId, incarnation: int) -> RoleIncarnation | None:
        """Return an incarnation, if it is the present one of its role."""
        current = self._records[role].current
        return current if current is not None and current.incarnation == incarnation else None

    def _placed(self, role: RoleId, slot: str) -> int:
        record = self._records[role]
        incarnation = self._first_incarnation + record.num_placed
        record.num_placed += 1
        record.current = RoleIncarnation(incarnation, slot, self._clock(), recalled_at=self._clock())
        return incarnation
