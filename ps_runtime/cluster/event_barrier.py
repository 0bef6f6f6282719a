"""Implements a barrier between tasks on a Dask cluster by scheduler events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId

SLICE_SECS = 0.25
SAY_AFTER_SECS = 30.0
NUM_PHASES = 3
"""Number of events in rotation: of this call, the next one, and the previous one, which some tasks still see."""

logger = logging.getLogger(__name__)


class SharedEvent(Protocol):
    """An event that all processes of a cluster share, as `ClusterEvent`."""

    def set(self) -> None:
        """Set the event for all processes."""

    def clear(self) -> None:
        """Clear the event for all processes."""

    def is_set(self) -> bool:
        """Whether it is set."""

    def wait(self, timeout: float) -> bool:
        """Wait until it is set; return whether it is."""


def arrival(role: RoleId, phase: int) -> str:
    """Return the name of the event that says that `role` is at the barrier."""
    return f"{role}-at-barrier-{phase}"


def arrivals(role: RoleId) -> list[str]:
    """Return the names of all such events of one role."""
    return [arrival(role, phase) for phase in range(NUM_PHASES)]


class EventBarrier:
    """A reusable barrier between tasks.

    Notes
    -----
    Not thread-safe. A task sets its event of this call, then waits for those of the other tasks. By then all others
    have left the call before the last one, so the task may clear the event of that call, which is used next. A call
    that raised does not count for this task: its next call waits for the same call of the others. For the others it
    counts, because they have seen this task arrive.
    """

    def __init__(
        self,
        event: Callable[[str], SharedEvent],
        role: RoleId,
        others: Sequence[RoleId],
        has_ended: Callable[[RoleId], bool],
        check: Callable[[], None],
    ) -> None:
        self._event = event
        self._role = role
        self._others = others
        self._has_ended = has_ended
        self._check = check
        self._num_meetings = 0

    def wait(self, timeout_secs: float) -> None:
        """Return once all tasks have called this as often as this one has. Blocks.

        Raises
        ------
        WaitTimeoutError
            If some tasks do not arrive in time, with their names, or if the scheduler is silent for minutes.
        StoppedError
            If one of them has ended, with or without a failure.
        """
        phase = self._num_meetings % NUM_PHASES
        self._event(arrival(self._role, (phase + 1) % NUM_PHASES)).clear()
        self._event(arrival(self._role, phase)).set()
        deadline, say = Deadline(timeout_secs), Deadline(SAY_AFTER_SECS)
        missing = list(self._others)
        while missing:
            has_come = self._event(arrival(missing[0], phase)).wait(min(SLICE_SECS, deadline.remaining_secs))
            if has_come:
                missing.pop(0)
                continue
            self._check()
            missing = [role for role in missing if not self._event(arrival(role, phase)).is_set()]
            self._check_ended(missing, phase)
            if missing and deadline.has_passed:
                where = (
                    f"{self._role} is in its call number {self._num_meetings + 1}; have all workers call it as often"
                )
                raise WaitTimeoutError(", ".join(map(str, missing)), "reach the barrier", timeout_secs, where)
            if missing and say.has_passed:
                names = ", ".join(map(str, missing))
                logger.warning("%s waits up to %.0f s more for %s", self._role, deadline.remaining_secs, names)
                say = Deadline(SAY_AFTER_SECS)
        self._num_meetings += 1

    def _check_ended(self, missing: Sequence[RoleId], phase: int) -> None:
        # a role that arrived and left meanwhile has ended, too: so its event is looked at again
        gone = [role for role in missing if self._has_ended(role) and not self._event(arrival(role, phase)).is_set()]
        if gone:
            what = f"{', '.join(map(str, gone))} ended before the barrier"
            remedy = "have all workers call wait_for_other_workers as often"
            raise StoppedError(str(self._role), f"{what} in its call number {self._num_meetings + 1}; {remedy}")
