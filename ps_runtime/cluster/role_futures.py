"""Submits incarnations of roles as Dask tasks, reports how they end, and cancels them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from psflow.ps_runtime.cluster.failures import scheduler_loss
from psflow.ps_runtime.errors import RoleFailedError, StoppedError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId

RESULT_TIMEOUT_SECS = 30.0
"""For fetching the report of a role that has ended."""

OnOutcome = Callable[[RoleId, int, Any, RoleFailedError | None], None]
"""Takes role, incarnation, its report or error, and the error of the job if the scheduler is gone."""


class RoleFutures:
    """The futures of the present incarnations of all roles."""

    def __init__(self, client: Client, topic: str, on_outcome: OnOutcome) -> None:
        self.topic = topic
        """Of the events of the roles."""
        self._client = client
        self._on_outcome = on_outcome
        self._futures: dict[RoleId, Future[Any]] = {}

    def submit(
        self,
        role: RoleId,
        incarnation: int,
        slot: str,
        function: Callable[..., Any],
        *arguments: Any,
        number: int = 0,
        **options: Any,
    ) -> None:
        """Submit an incarnation of a role, as a call of `function` with its role, its incarnation and the topic.

        The unique key, with the `number` of the incarnation, keeps Dask from taking it for an earlier one.
        """
        future = self._client.submit(
            function,
            role,
            incarnation,
            self.topic,
            *arguments,
            **options,
            key=f"{self.topic}-{role}-{number}",
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
        outcome: Any
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

    async def _fetched(self, role: RoleId, future: Future[Any]) -> Any:
        """Return the report of a role that has ended, or raise its error."""
        gathered: Any = self._client.gather(future, asynchronous=True)
        fetching: asyncio.Future[Any] = asyncio.ensure_future(gathered)
        await asyncio.wait([fetching], timeout=RESULT_TIMEOUT_SECS)
        if not fetching.done() or fetching.cancelled():  # with that of another role, which Dask fetches together
            fetching.cancel()
            raise WaitTimeoutError(str(role), "hand over its report", RESULT_TIMEOUT_SECS)
        return fetching.result()
