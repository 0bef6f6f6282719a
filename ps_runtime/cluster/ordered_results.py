"""The results of many tasks in the order of what they were made of, a bounded number of them under way."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, TypeVar

from distributed import Client, Future, KilledWorker, wait

from psflow.ps_runtime.cluster.connecting import tls_fault
from psflow.ps_runtime.cluster.failures import scheduler_loss
from psflow.ps_runtime.cluster.slots import Slots
from psflow.ps_runtime.errors import PsflowError, StoppedError, UsageError
from psflow.ps_runtime.specs.arguments import ArgumentFaults

__all__ = ["Client", "WorkersLostError", "ordered_results"]

logger = logging.getLogger(__name__)

LOOK_SECS = 0.5
"""For a task to end, before somebody looks whether the cluster has workers."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def ordered_results(
    client: Client, function: Callable[[bytes, Piece], Result], common: bytes, pieces: Iterator[Piece]
) -> Generator[Result, None, None]:
    """Yield ``function(common, piece)`` for each piece, in their order, computed by a cluster. Blocks between results.

    Parameters
    ----------
    client : Client
        Of the cluster.
    function : callable
        Computes a piece in a Dask worker; may be called again.
    common : bytes
        What all pieces have in common; each worker gets it once.
    pieces : iterator
        Read as far as the window takes them. ``str`` of one says what it is, for error texts.

    Raises
    ------
    UsageError
        If `client` is none that waits; an ArgumentTypeError if it is no client.
    WorkersLostError
        If the workers of a piece have died, one after the other.
    WaitTimeoutError
        If the cluster has had no worker for half a minute.
    RoleFailedError
        If the scheduler is gone.
    StoppedError
        If somebody else has cancelled a piece.
    Exception
        What a task or `pieces` failed with, once the results before it are yielded.

    Notes
    -----
    A result that nobody has taken yet counts as under way, so a slow reader bounds what is in memory. A piece whose
    worker has died is computed again, by Dask. To close the iterator cancels what is under way.
    """
    _check_client(client)
    slots = Slots(client)
    shared = client.submit(_same, common, pure=False)  # if its worker dies, Dask makes it again
    under_way: deque[tuple[Piece, Future[Result]]] = deque()
    is_over, failure = False, None
    try:
        while True:
            is_first_done = bool(under_way) and under_way[0][1].done()
            if not is_over and not is_first_done and len(under_way) < slots.window():
                try:
                    piece = next(pieces)
                except StopIteration:
                    is_over = True
                except Exception as error:  # of an input; the results before it come first
                    is_over, failure = True, error
                else:
                    under_way.append((piece, client.submit(function, shared, piece, pure=False)))
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


def _check_client(client: Any) -> None:
    if not isinstance(client, Client):
        faults = ArgumentFaults()
        faults.add_type("client", "a distributed.Client or None", client)
        faults.raise_any()
    if client.asynchronous:
        raise UsageError(("client is asynchronous: expected distributed.Client(...) without asynchronous=True",))
    if (fault := tls_fault(client)) is not None:
        logger.warning(fault)


def _same(common: bytes) -> bytes:
    return common


def _result(client: Client, slots: Slots, piece: object, future: Future[Result]) -> Result:
    while not future.done():
        slots.count()
        with contextlib.suppress(TimeoutError, CancelledError):
            wait([future], timeout=LOOK_SECS)
    try:
        result: Result = future.result()
    except KilledWorker as error:
        raise WorkersLostError(str(piece), error.allowed_failures + 1) from None
    except CancelledError as error:
        raise scheduler_loss(client, error) or StoppedError(str(piece), "its Dask task was cancelled") from None
    return result


@dataclass(eq=False)
class WorkersLostError(PsflowError):
    """The Dask workers that computed a piece have died, one after the other."""

    piece: str
    num_workers: int

    def __str__(self) -> str:
        return (
            f"{self.num_workers} Dask workers died while they computed {self.piece}: see their logs; it may need more "
            "memory than a worker has"
        )
