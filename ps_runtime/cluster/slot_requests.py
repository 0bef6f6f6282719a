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
    Not thread-safe. To the scheduler its tasks are of one kind with roles, by their keys: once it knows how long those
    take, it wants a Dask worker for each task. Before, it expects a running one to take twice as long as it has run.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tasks: list[Future[Any]] = []

    def ask(self, num_slots: int, check: Callable[[], None], *, is_training: bool) -> None:
        """Ask for so many slots beside those in use; call it again until they are there. Blocks as `ask` does.

        The scheduler never wants more Dask workers than there are tasks, and soon wants that many if the job
        `is_training`. Before, each call adds tasks if it wants too few, in proportion, so that it does not want too
        many; it takes some away if it does, as running roles are more work to it each second.
        """
        self._tasks = [task for task in self._tasks if task.status == "pending"]  # others were refused
        self._add(num_slots - len(self._tasks))
        if is_training or not num_slots:
            self._keep(num_slots)
            return
        workers, tasks = look(self._client, check)
        num_busy = sum(map(len, tasks.values()))
        threads = sum(worker["nthreads"] for worker in workers.values()) / len(workers) if workers else 1
        wanted = ask(self._client, lambda scheduler: scheduler.adaptive_target(**self._adaptive_options), check)
        num_needed = math.ceil((num_busy + num_slots) / threads)
        if wanted < num_needed and len(self._tasks) < MOST * num_slots:
            at_most = max(wanted, len(workers) - 1, 1)  # it answers less where it would close idle Dask workers
            self._add(max(len(self._tasks) * num_needed // at_most - len(self._tasks), 1))
        elif wanted > num_needed:
            self._keep((len(self._tasks) + num_slots) // 2)

    def close(self) -> None:
        """Ask for nothing more. Idempotent."""
        self._keep(0)

    @property
    def _adaptive_options(self) -> dict[str, Any]:
        """Those with which Dask's adaptive scaling in this process asks the scheduler."""
        target_duration = getattr(getattr(self._client.cluster, "_adaptive", None), "target_duration", None)
        return {} if target_duration is None else {"target_duration": target_duration}

    def _add(self, num_tasks: int) -> None:
        if num_tasks > 0:
            key = f"psflow-{secrets.token_hex(8)}-slot"
            names = [f"{key}-{number}" for number in range(num_tasks)]
            self._tasks += self._client.map(_never, names, key=names, resources={RESOURCE: 1}, pure=False, retries=0)

    def _keep(self, num_tasks: int) -> None:
        """Cancel all tasks but the first `num_tasks`."""
        if self._tasks[num_tasks:] and self._client.status == "running":
            self._client.cancel(self._tasks[num_tasks:], force=True)
        del self._tasks[num_tasks:]


def is_adaptive(client: Client) -> bool:
    """Return whether the cluster of a client, made in this process, scales adaptively."""
    return getattr(client.cluster, "_adaptive", None) is not None


def _never(name: str) -> None:
    raise AssertionError(f"{name} needs {RESOURCE}, which no Dask worker should declare")
