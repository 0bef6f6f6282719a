"""Yields Dask futures in batches as they complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import CancelledError
from typing import Any

from distributed import Client, Future, as_completed

from psflow.ps_runtime.cluster.failures import scheduler_loss
from psflow.ps_runtime.cluster.slots import Slots

POLL_SECS = 0.1
"""Polling interval of `distributed.as_completed`."""


def completed_batches(
    client: Client, futures: Collection[Future[Any]], more: Callable[[], Collection[Future[Any]]] = tuple
) -> Iterator[list[Future[Any]]]:
    """Yield the futures completed since the last batch, until all are complete. Blocks between batches.

    A batch comes several times a second, and is empty if none has completed. After each batch, `more` may return
    further futures.

    Raises
    ------
    WaitTimeoutError
        If the cluster has had no worker for half a minute.
    RoleFailedError
        If the scheduler has ended.
    """
    completed = as_completed(futures, loop=client.loop)
    slots = Slots(client)
    while not completed.is_empty():
        slots.count()
        batch: list[Future[Any]] = completed.next_batch(block=False)
        _check_scheduler(client, batch)
        yield batch
        completed.update(more())
        if not batch:
            time.sleep(POLL_SECS)


def _check_scheduler(client: Client, futures: Collection[Future[Any]]) -> None:
    for future in filter(Future.cancelled, futures):
        try:
            future.result()
        except CancelledError as error:
            loss = scheduler_loss(client, error)
            if loss is not None:
                raise loss from None
