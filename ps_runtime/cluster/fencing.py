"""Decides whether a role may still write, by asking the scheduler: the role may have been stopped and replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed import Worker

from psflow.ps_runtime.cluster.scheduler_rpc import ask
from psflow.ps_runtime.errors import RoleFailedError, StoppedError


class SchedulerFence:
    """Lets a role write as long as the scheduler lists its task on its Dask worker.

    A stopped process does not notice that it was stopped. When it continues, the scheduler may have removed its Dask
    worker and started the role elsewhere, before this process learns of it.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self, worker: Worker, key: Any, role: str, check: Callable[[], None]) -> None:
        self._worker = worker
        self._key = key
        self._role = role
        self._check = check

    def __call__(self) -> None:
        """Ask the scheduler. Blocks for one round trip.

        Raises
        ------
        StoppedError
            If the role runs elsewhere by now, is to end, or loses its connection to the scheduler.
        WaitTimeoutError
            If the scheduler does not answer for minutes.
        """
        self._check()
        try:
            keys = ask(self._worker, self._keys_here, self._check, f"confirm that {self._role} still runs")
            is_known = self._key in keys
        except KeyError:  # the scheduler has removed the Dask worker
            is_known = False
        except RoleFailedError as error:
            raise StoppedError(self._role, f"the Dask scheduler is gone: {error.__cause__}") from error
        if not is_known:
            raise StoppedError(self._role, "it was lost meanwhile, and restarts elsewhere; it writes nothing more")

    async def _keys_here(self, scheduler: Any) -> list[Any]:
        address: Any = self._worker.contact_address
        processing: dict[str, list[Any]] = await scheduler.processing(workers=[address])
        return processing[address]
