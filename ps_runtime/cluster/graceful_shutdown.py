"""Lets a role finish its step, and report to its owner, before its Dask worker closes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distributed import Worker, WorkerPlugin
from distributed.core import Status

from psflow.ps_runtime.deadline import Deadline

LEAVE_SECS = 5.0
"""For the current step of a role; the nanny of a Dask worker kills it 8 s after the order to close."""
POLL_SECS = 0.02
CLOSES = (Status.closing_gracefully, Status.closing)


class GracefulShutdown(WorkerPlugin):
    """Has a closing Dask worker wait for its role.

    Dask cancels the tasks of a worker, and ends its connections, as soon as it closes: on SIGTERM, or when it is
    retired. It waits only for its plugins.
    """

    def __init__(self, worker: Worker, report: Callable[[], None]) -> None:
        self._worker = worker
        self._report = report
        self._has_ended = threading.Event()
        self._until: Deadline | None = None

    def is_due(self) -> bool:
        """Return whether the role is to shut down."""
        if self._worker.status not in CLOSES:
            return False
        if self._until is None:
            self._until = Deadline(LEAVE_SECS)
            self._report()
        return True

    def has_time(self) -> bool:
        """Return whether the role is to shut down, and there is time left for its step."""
        return self.is_due() and self._until is not None and not self._until.has_passed

    def end(self) -> None:
        """Record that the role has ended, so that nothing waits for it."""
        self._has_ended.set()

    async def teardown(self, worker: Worker) -> None:
        """Wait for the role, as long as there is time."""
        while self.has_time() and not self._has_ended.is_set():
            await asyncio.sleep(POLL_SECS)


@contextmanager
def shutdown_of(name: str, worker: Worker, report: Callable[[], None]) -> Iterator[GracefulShutdown]:
    """Have a Dask worker wait for the role that runs in the block; `name` is unique on this worker."""
    shutdown = GracefulShutdown(worker, report)
    worker.loop.add_callback(worker.plugin_add, shutdown, name)
    try:
        yield shutdown
    finally:
        shutdown.end()
        worker.loop.add_callback(worker.plugins.pop, name, None)  # it is gone already if the worker closes
