"""Implements a barrier between tasks on a Dask cluster by scheduler events."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from distributed import Client, Worker

from psflow.ps_runtime.cluster.scheduler_rpc import ask
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId

SLICE_SECS = 0.25
SAY_AFTER_SECS = 30.0
NUM_PHASES = 3
"""Number of events in rotation: of this call, the next one, and the previous one, which some tasks still see."""

logger = logging.getLogger(__name__)


class ClusterEvent:
    """An event that all processes of a cluster share: a ``distributed.Event`` whose calls have a limit.

    Dask counts the timeout of a wait in the scheduler; a stopped scheduler never ends the wait.

    Notes
    -----
    Each call blocks, and raises, as `ask` does. Thread-safe.
    """

    def __init__(self, node: Client | Worker, topic: str, check: Callable[[], None], name: str) -> None:
        self._node = node
        self._name = f"{topic}-{name}"
        self._check = check

    def set(self) -> None:
        """Set the event for all processes."""
        ask(self._node, lambda scheduler: scheduler.event_set(name=self._name), self._check)

    def clear(self) -> None:
        """Clear the event for all processes; the scheduler then forgets it."""
        ask(self._node, lambda scheduler: scheduler.event_clear(name=self._name), self._check)

    def is_set(self) -> bool:
        """Whether it is set."""
        return bool(ask(self._node, lambda scheduler: scheduler.event_is_set(name=self._name), self._check))

    def wait(self, timeout: float) -> bool:
        """Wait until it is set; return whether it is."""

        def question(scheduler: Any) -> Awaitable[bool]:
            wait: Awaitable[bool] = scheduler.event_wait(name=self._name, timeout=timeout)
            return wait

        return ask(self._node, question, self._check)


def arrival(role: RoleId, phase: int) -> str:
    """Return the name of the event that says that `role` is at the barrier."""
    return f"{role}-at-barrier-{phase}"


def ended(role: RoleId) -> str:
    """Return the name of the event that says that `role` comes to the barrier no more."""
    return f"{role}-ended"


async def clear_events(scheduler: Any, topic: str, roles: Sequence[RoleId]) -> None:
    """Have the scheduler forget all events of the barrier of some roles."""
    for role in roles:
        for name in (ended(role), *(arrival(role, phase) for phase in range(NUM_PHASES))):
            await scheduler.event_clear(name=f"{topic}-{name}")


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
        event: Callable[[str], ClusterEvent],
        role: RoleId,
        others: Sequence[RoleId],
        check: Callable[[], None],
    ) -> None:
        self._event = event
        self._role = role
        self._others = others
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
        left = [role for role in missing if self._event(ended(role)).is_set()]
        gone = [role for role in left if not self._event(arrival(role, phase)).is_set()]  # it arrived before it left
        if gone:
            what = f"{', '.join(map(str, gone))} ended before the barrier"
            remedy = "have all workers call wait_for_other_workers as often"
            raise StoppedError(str(self._role), f"{what} in its call number {self._num_meetings + 1}; {remedy}")
