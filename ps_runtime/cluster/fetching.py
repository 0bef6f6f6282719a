"""Fetches the outcome of a Dask task through a scheduler that may hang meanwhile."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, TypeVar

from distributed import Future

from psflow.ps_runtime.cluster.scheduler_rpc import is_silence
from psflow.ps_runtime.cluster.slots import Slots

T = TypeVar("T")

LOOK_SECS = 0.5
"""For the result to arrive, before the next check that the scheduler answers."""


def fetched(slots: Slots, future: Future[T]) -> concurrent.futures.Future[T]:
    """Return a future of this process that holds the result already, or the error of the task. Blocks.

    Errors of the task stay apart from those below, so that a hanging scheduler is not taken for a failure of the task.

    Raises
    ------
    RoleFailedError
        If the connection to the scheduler breaks.
    WaitTimeoutError
        If the scheduler is silent for minutes, or the cluster has had no worker for half a minute.
    """
    loop: Any = future.client.loop
    result = asyncio.run_coroutine_threadsafe(_result(future), loop.asyncio_loop)
    try:
        while not concurrent.futures.wait([result], LOOK_SECS).done:
            slots.count()
    finally:
        result.cancel()  # a worker that has joined stays
    return result


async def _result(future: Future[T]) -> T:
    while True:
        try:
            result: T = await future
        except OSError as error:
            if future.status == "error" or not is_silence(error):  # an error of the task itself, or a broken connection
                raise
        else:
            return result
