"""Submits incarnations of roles as Dask tasks, reports how they end, and cancels them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from psflow.ps_runtime.cluster.failures import scheduler_loss
from psflow.ps_runtime.cluster.role_task import run_role
from psflow.ps_runtime.errors import RoleFailedError, StoppedError, WaitTimeoutError
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.shipping.pickles import pickled
from psflow.ps_runtime.specs.roles import RoleId
from psflow.ps_runtime.transport.listeners import Address

RESULT_TIMEOUT_SECS = 30.0
"""For fetching the report of a role that has ended."""

OnOutcome = Callable[[RoleId, int, dict[str, Any] | BaseException, RoleFailedError | None], None]
"""Takes role, incarnation, its report or error, and the error of the job if the scheduler is gone."""


class RoleFutures:
    """The futures of the present incarnations of all roles."""

    def __init__(self, client: Client, job: JobSpec, on_outcome: OnOutcome) -> None:
        self.topic = f"psflow-{job.job_id}-{job.attempt}"
        """Of the events of the roles."""
        self.first_step_at: float | None = None
        """Unix time of the first step of the attempt; passed to each later incarnation."""
        self._client = client
        self._on_outcome = on_outcome
        self._first_incarnation = job.first_incarnation
        self._runs_program = job.runs_program
        # opaque bytes: the scheduler does not unpickle them
        self._pickled = pickled(job, "the job")
        self._without_program = pickled(job.without_program(), "the job")
        self._futures: dict[RoleId, Future[Any]] = {}

    def submit(
        self, role: RoleId, incarnation: int, slot: str, addresses: Sequence[Address], *, is_alone: bool
    ) -> None:
        """Submit an incarnation of a role; its unique key keeps Dask from taking it for an earlier one."""
        future = self._client.submit(
            run_role,
            self._pickled if self._runs_program(role) else self._without_program,
            role,
            incarnation,
            self.topic,
            addresses,
            is_alone=is_alone,
            first_step_at=self.first_step_at,
            key=f"{self.topic}-{role}-{incarnation - self._first_incarnation}",
            pure=False,
            workers=[slot],
            allow_other_workers=False,
            retries=0,
        )
        self._futures[role] = future
        # in the event loop: all futures of this process share the thread that calls this
        loop: Any = self._client.loop
        future.add_done_callback(partial(loop.add_callback, self._take_outcome, role, incarnation))

    def cancel(self, roles: Iterable[RoleId]) -> None:
        """Cancel the incarnations of `roles`, if not done before; they end within about a quarter of a second."""
        futures = [future for role in roles if (future := self._futures.pop(role, None)) is not None]
        if futures:
            self._client.cancel(futures, force=True)

    def cancel_all(self) -> None:
        """Cancel the incarnations of all roles."""
        self.cancel(list(self._futures))

    async def _take_outcome(self, role: RoleId, incarnation: int, future: Future[Any]) -> None:
        outcome: dict[str, Any] | BaseException
        loss = None
        try:
            outcome = await self._fetched(role, future)
        except KilledWorker:  # Dask's allowed-failures is 0 here; the owner of the job learns of lost Dask workers
            return
        except CancelledError as cancelled:
            outcome, loss = StoppedError(str(role), "it was cancelled"), scheduler_loss(self._client, cancelled)
        except Exception as failure:  # any error of the role, or of user code in it
            outcome = failure
        self._on_outcome(role, incarnation, outcome, loss)

    async def _fetched(self, role: RoleId, future: Future[Any]) -> dict[str, Any]:
        """Return the report of a role that has ended, or raise its error."""
        gathered: Any = self._client.gather(future, asynchronous=True)
        fetching: asyncio.Future[dict[str, Any]] = asyncio.ensure_future(gathered)
        await asyncio.wait([fetching], timeout=RESULT_TIMEOUT_SECS)
        if not fetching.done() or fetching.cancelled():  # with that of another role, which Dask fetches together
            fetching.cancel()
            raise WaitTimeoutError(str(role), "hand over its report", RESULT_TIMEOUT_SECS)
        return fetching.result()
