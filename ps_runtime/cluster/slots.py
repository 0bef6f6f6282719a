"""Counts the slots of a cluster, for callers that keep them busy with many small tasks."""

from __future__ import annotations

from distributed import Client

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.scheduler_rpc import ask
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import WaitTimeoutError

AHEAD = 4
"""Submitted tasks per slot: one runs, the others keep it busy until the next look, if they are small."""
LOOK_SECS = 2.0
"""Between two questions to the scheduler whether the cluster has workers."""
NO_WORKERS_SECS = 30.0


class Slots:
    """The number of slots of a cluster, at most two seconds old."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._count = 0
        self._next_look = Deadline(0)
        self._no_workers: Deadline | None = None
        """Since the first of the latest answers without a worker: there may be a long gap before it."""

    def count(self) -> int:
        """Return the number of slots. Blocks while the scheduler is asked.

        Raises
        ------
        RoleFailedError
            If the connection to the scheduler breaks.
        WaitTimeoutError
            If the cluster has had no worker for half a minute, or its scheduler is silent for minutes.
        """
        if self._next_look.has_passed:
            self._next_look = Deadline(LOOK_SECS)
            self._count = sum(ask(self._client, lambda scheduler: scheduler.ncores(), never_stop).values())
            self._no_workers = None if self._count else self._no_workers or Deadline(NO_WORKERS_SECS)
            if self._no_workers is not None and self._no_workers.has_passed:
                raise WaitTimeoutError("the Dask cluster", "have any worker", NO_WORKERS_SECS)
        return self._count

    def window(self) -> int:
        """Return how many tasks may be under way at once, at least 1; raise as `count` does."""
        return AHEAD * max(1, self.count())
