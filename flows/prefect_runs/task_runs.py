"""Task runs that show in Prefect what runs elsewhere, on the cluster."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Self

from prefect import Task
from prefect.futures import PrefectFuture

from psflow.ps_runtime.deadline import Deadline, stop_clock

__all__ = ["TaskRuns"]

END_SECS = 30.0
"""For all to take over how what they show has ended. Prefect waits for their threads in any case, but calls crashed
those that end later."""


class TaskRuns:
    """Task runs that end with a ``with`` block."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._futures: list[PrefectFuture[Any]] = []

    def submit(self, task: Task[..., Any], *arguments: object) -> None:
        """Start one, in a thread."""
        self._futures.append(task.submit(*arguments))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        try:
            self._await_all()
        except KeyboardInterrupt:
            self._await_all()
            raise

    def _await_all(self) -> None:
        deadline = Deadline(stop_clock.limited(END_SECS))
        for future in self._futures:
            future.wait(deadline.remaining_secs)
