"""Asks an adaptive cluster for slots, by tasks that no Dask worker may run: its scheduler counts them as work."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from typing import Any

from distributed import Client, Future

from psflow.ps_runtime.cluster.admission import look
from psflow.ps_runtime.cluster.scheduler_rpc import ask

RESOURCE = "psflow-requested-slot"
"""A Dask resource that no worker declares."""
MOST = 100
"""Tasks for each slot: Dask takes a task of unknown length for one of half a second, and adds a Dask worker for each
five seconds of work, unless its configuration says else.
"""


class SlotRequests:
    """Asks for slots until `close`.

    Notes
    -----
    Not thread-safe.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._num_slots = 0
        self._tasks: list[Future[Any]] = []

    def ask(self, num_slots: int, check: Callable[[], None]) -> None:
        """Ask for so many slots beside those in use; call it again until they are there. Blocks as `ask` does.

        Each call adds tasks as long as the scheduler would not have enough Dask workers for all.
        """
        if num_slots != self._num_slots:
            self.close()
            self._num_slots = num_slots
        if not num_slots:
            return
        workers, tasks = look(self._client, check)
        num_busy = sum(map(len, tasks.values()))
        threads = sum(worker["nthreads"] for worker in workers.values()) / len(workers) if workers else 1
        target = ask(self._client, lambda scheduler: scheduler.adaptive_target(), check)
        is_enough = self._tasks and target >= math.ceil((num_busy + num_slots) / threads)
        if not is_enough and len(self._tasks) < MOST * num_slots:
            key = f"psflow-slot-{secrets.token_hex(8)}"
            names = [f"{key}-{number}" for number in range(num_slots)]
            self._tasks += self._client.map(_never, names, key=names, resources={RESOURCE: 1}, pure=False, retries=0)

    def close(self) -> None:
        """Ask for nothing more. Idempotent."""
        self._num_slots = 0
        if self._tasks and self._client.status == "running":
            self._client.cancel(self._tasks, force=True)
        self._tasks = []


def is_adaptive(client: Client) -> bool:
    """Return whether the cluster of a client, made in this process, scales adaptively."""
    return getattr(client.cluster, "_adaptive", None) is not None


def _never(name: str) -> None:
    raise AssertionError(f"{name} needs {RESOURCE}, which no Dask worker should declare")
