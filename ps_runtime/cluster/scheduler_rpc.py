"""Asks the scheduler of a Dask cluster, with a time limit and a check for a stop."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from distributed import Client, Worker

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import RoleFailedError, WaitTimeoutError

T = TypeVar("T")
Question = Callable[[Any], Awaitable[T]]
"""Calls the given scheduler, in the event loop of a Dask node."""

SLICE_SECS = 0.25
SILENCE_SECS = 300.0
"""For the scheduler to answer; as long as it waits itself for a silent worker (``worker-ttl``)."""
REMEDY = "check its log and its host, restart it if needed, then run the same command again"
GONE = "the connection to it broke; check its log, restart it, then run the same command again"


def ask(node: Client | Worker, question: Question[T], check: Callable[[], None], action: str = "answer") -> T:
    """Return the answer to a question. Blocks for one round trip.

    Raises
    ------
    RoleFailedError
        If the connection to the scheduler breaks.
    WaitTimeoutError
        If the scheduler is silent for minutes.
    """
    answer = put(node, question)
    deadline = Deadline(SILENCE_SECS)
    try:
        while not concurrent.futures.wait([answer], SLICE_SECS).done:
            check()
            if deadline.has_passed:
                raise silence(node, action)
    finally:
        answer.cancel()
    try:
        return answer.result()
    except (OSError, CancelledError) as error:
        raise scheduler_gone(node) from error


def put(node: Client | Worker, question: Question[T]) -> Future[T]:
    """Ask a question, and return the future answer; the caller sets its limit. Does not block.

    The question is repeated where Dask gave up its connection to a silent scheduler, which it does after 30 s.
    """
    loop: Any = node.loop
    return asyncio.run_coroutine_threadsafe(_answer(node, question), loop.asyncio_loop)


def is_silence(error: OSError) -> bool:
    """Return whether Dask has given up connecting to a scheduler whose host accepts connections, or says nothing.

    A stopped scheduler is one: it may continue. A scheduler whose host refuses a connection is gone.
    """
    return isinstance(error.__cause__, TimeoutError)  # the error of each attempt; CommClosedError if it is refused


def silence(node: Client | Worker, action: str = "answer") -> WaitTimeoutError:
    """Return the error if the scheduler has not done `action` for `SILENCE_SECS`."""
    return WaitTimeoutError(_name(node), action, SILENCE_SECS, REMEDY)


def scheduler_gone(node: Client | Worker) -> RoleFailedError:
    """Return the error if the connection to the scheduler breaks."""
    return RoleFailedError(_name(node), GONE)


def _name(node: Client | Worker) -> str:
    address = getattr(node.scheduler, "address", None)  # a client that has given up has no scheduler any more
    return "the Dask scheduler" if address is None else f"the Dask scheduler at {address}"


async def _answer(node: Client | Worker, question: Question[T]) -> T:
    while True:
        scheduler: Any = node.scheduler
        if scheduler is None:
            raise ConnectionResetError("the Dask client has lost its scheduler")
        try:
            return await question(scheduler)
        except OSError as error:
            if not is_silence(error):
                raise
