"""Computes many tasks, a bounded number at a time, and yields their results in input order."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, TypeVar

from distributed import Client as Client  # packages above this one may not import Dask
from distributed import Future, KilledWorker, wait

from psflow.ps_runtime.cluster.connecting import warn_of_tls
from psflow.ps_runtime.cluster.failures import scheduler_loss
from psflow.ps_runtime.cluster.fetching import fetched
from psflow.ps_runtime.cluster.slots import Slots
from psflow.ps_runtime.errors import PsflowError, StoppedError, UsageError
from psflow.ps_runtime.specs.arguments import ArgumentFaults

LOOK_SECS = 0.5
"""For a task to end, before the next check that the cluster has workers."""

Common = TypeVar("Common")
Partition = TypeVar("Partition")
Result = TypeVar("Result")


def ordered_results(
    client: Client, function: Callable[[Common, Partition], Result], common: Common, partitions: Iterator[Partition]
) -> Generator[Result, None, None]:
    """Yield ``function(common, partition)`` for each partition, in order, computed by a cluster. Blocks.

    Raises
    ------
    UsageError
        If `client` is asynchronous or not running; an ArgumentTypeError if it is not a client.
    WorkersLostError
        If the workers of a partition have died, one after the other.
    WaitTimeoutError
        If the cluster has had no worker for half a minute, or its scheduler is silent for minutes.
    RoleFailedError
        If the scheduler is gone.
    StoppedError
        If a partition was cancelled from elsewhere.
    Exception
        The error of a task or of `partitions`, after the results before it.

    Notes
    -----
    A result that is not read yet counts as under way, so a slow reader bounds the memory. A partition whose
    worker has died is computed again, by Dask. Closing the iterator cancels what is under way.
    """
    check_client(client)
    slots = Slots(client)
    shared = client.submit(_same, common, pure=False)  # if its worker dies, Dask computes it again
    under_way: deque[tuple[Partition, Future[Result]]] = deque()
    is_over, failure = False, None
    try:
        while True:
            is_first_done = bool(under_way) and under_way[0][1].done()
            if not is_over and not is_first_done and len(under_way) < slots.window():
                try:
                    partition = next(partitions)
                except StopIteration:
                    is_over = True
                except Exception as error:  # an input error; the results before it come first
                    is_over, failure = True, error
                else:
                    under_way.append((partition, client.submit(function, shared, partition, pure=False)))
            elif under_way:
                result = _result(client, slots, *under_way[0])
                under_way.popleft()
                yield result
            elif failure is not None:
                raise failure
            else:
                return
    finally:
        if client.status == "running":
            client.cancel([shared, *(future for _, future in under_way)])


def check_client(client: Any) -> None:
    """Refuse anything but a synchronous, running client, and warn of a scheduler without TLS."""
    if not isinstance(client, Client):
        faults = ArgumentFaults()
        faults.add_type("client", "a distributed.Client or None", client)
        faults.raise_any()
    if client.status != "running":
        raise UsageError((f"client is {client.status}: expected one that is connected to its scheduler",))
    if client.asynchronous:
        raise UsageError(("client is asynchronous: expected distributed.Client(...) without asynchronous=True",))
    warn_of_tls(client)


def _same(common: Common) -> Common:
    return common


def _result(client: Client, slots: Slots, partition: object, future: Future[Result]) -> Result:
    while not future.done():
        slots.count()
        with contextlib.suppress(TimeoutError, CancelledError):
            wait([future], timeout=LOOK_SECS)
    try:
        return fetched(slots, future).result()
    except KilledWorker as error:
        raise WorkersLostError(str(partition), error.allowed_failures + 1) from None
    except CancelledError as error:
        raise scheduler_loss(client, error) or StoppedError(str(partition), "its Dask task was cancelled") from None


@dataclass(eq=False)
class WorkersLostError(PsflowError):
    """The Dask workers that computed a partition have died, one after the other."""

    partition: str
    num_workers: int

    def __str__(self) -> str:
        return (
            f"{self.num_workers} Dask workers died while they computed {self.partition}: see their logs; it may need "
            "more memory than a worker has"
        )
