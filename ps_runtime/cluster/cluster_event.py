"""Provides an event of the scheduler of a Dask cluster whose waits end also when the scheduler hangs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from distributed import Client, Worker

from psflow.ps_runtime.cluster.scheduler_rpc import ask


class ClusterEvent:
    """An event that all processes of a cluster share: a ``distributed.Event`` whose calls have a limit.

    Dask counts the timeout of a wait in the scheduler; a stopped scheduler never ends the wait.

    Notes
    -----
    Each call blocks, and raises, as `ask` does. Thread-safe.
    """

    def __init__(self, node: Client | Worker, name: str, check: Callable[[], None]) -> None:
        self._node = node
        self._name = name
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
