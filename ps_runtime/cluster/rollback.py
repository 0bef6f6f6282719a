"""Reserves the slots of a job that rolls back to a checkpoint until its roles have restarted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress

from distributed import Client

from psflow.ps_runtime.cluster.cluster_lock import CHOOSING, ClusterLock
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import RoleFailedError
from psflow.ps_runtime.specs.roles import Role

KEEP_SECS = 60.0
"""For the roles to end and to restart; a job that finds no slot does not block others for longer."""


class RollbackReservation:
    """Holds the lock on slots from before the roles of a job are ended until they have restarted.

    Meanwhile these slots are free: a waiting job would take them.

    Notes
    -----
    Not thread-safe.
    """

    def __init__(self, client: Client, supervisor: Supervisor) -> None:
        self._client = client
        self._supervisor = supervisor
        self._lock: ExitStack | None = None
        self._until: Deadline | None = None
        """None while training does not roll back."""

    @property
    def has_lock(self) -> bool:
        """Whether no other job chooses slots."""
        return self._lock is not None

    def look(self, check: Callable[[], None]) -> None:
        """Acquire the lock when training rolls back, and release it later. Blocks while the scheduler is asked.

        Raises WaitTimeoutError if the scheduler is silent for minutes.
        """
        with self._supervisor.lock:
            is_shutting_down = bool(self._supervisor.recalled())
            rolls_back = is_shutting_down or any(role.role is Role.PS for role in self._supervisor.waiting())
            is_back = not is_shutting_down and self._supervisor.is_training
        if is_back:
            self._until = None
        elif rolls_back and self._until is None:
            self._until = Deadline(KEEP_SECS)
        if self._until is None or self._until.has_passed:
            self.close()
        elif self._lock is None:
            self._take(check)

    def close(self) -> None:
        """Release the lock. Idempotent; blocks for a second at most."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take(self, check: Callable[[], None]) -> None:
        with suppress(RoleFailedError), ExitStack() as held:  # the owner detects a broken connection by other means
            if held.enter_context(ClusterLock(self._client, CHOOSING)).take(check):
                self._lock = held.pop_all()
