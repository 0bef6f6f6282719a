"""Locks the start of a job and the choice of slots among the jobs of a Dask cluster."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from distributed import Client, Lock

from psflow.ps_runtime.cluster.scheduler_rpc import ask, put

STARTING = "psflow-admission"
"""Held while a job waits for its slots, then starts: other jobs start after it."""
CHOOSING = "psflow-slots"
"""Held while a job chooses among the free slots, until the scheduler lists these as taken."""
GIVE_BACK_SECS = 1.0
"""For the scheduler to release it; a silent scheduler releases a lock half a minute after its owner's last sign."""


class ClusterLock:
    """A lock that one job of a cluster holds at a time, from `take` to `give_back`, or to the end of a ``with`` block.

    Notes
    -----
    Not thread-safe.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._lock = Lock(name, scheduler_rpc=client.scheduler, loop=client.loop)
        self._is_ours = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.give_back()
        finally:  # the caller may not want to wait
            if hasattr(self._lock, "refresh_callback"):  # else Dask calls it until the client closes
                loop: Any = self._client.loop
                loop.add_callback(self._lock.refresh_callback.stop)

    def take(self, check: Callable[[], None]) -> bool:
        """Acquire the lock; return whether this job holds it. Blocks while the scheduler is asked, as `ask` does."""
        self._is_ours = ask(self._client, lambda scheduler: self._lock.acquire(timeout=0), check)
        return self._is_ours

    def give_back(self) -> None:
        """Release the lock. Idempotent; blocks for a second at most."""
        was_ours, self._is_ours = self._is_ours, False
        if was_ours and self._client.status == "running":  # without the scheduler there is no lock
            given = put(self._client, lambda scheduler: self._lock.release())
            concurrent.futures.wait([given], GIVE_BACK_SECS)
            given.cancel()
