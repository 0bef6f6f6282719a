"""Asks the scheduler of a Dask cluster, with a time limit and a check for a stop, or again and again."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, TypeVar

from distributed import Client, Worker

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import RoleFailedError, WaitTimeoutError

T = TypeVar("T")
Question = Callable[[Any], Awaitable[T]]
"""Calls the given scheduler, in the event loop of a Dask node."""

SLICE_SECS = 0.25
SILENCE_SECS = 300.0
"""For the scheduler to answer; as long as it waits itself for a silent worker (``worker-ttl``)."""
WARN_SECS = 30.0
"""Without an answer to a poll, before the log says so."""
LOOK_SECS = 1.0
"""Maximum time that one look at a poll adds; during a longer gap this process did not observe the scheduler."""
REMEDY = "check its log and its host, restart it if needed, then run the same command again"
GONE = "the connection to it broke; check its log, restart it, then run the same command again"

logger = logging.getLogger(__name__)


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


class SchedulerPoll(Generic[T]):
    """Asks the scheduler a question repeatedly, warns once it does not answer, and gives up after minutes.

    Time counts only while this process looks: one that was itself stopped knows nothing of the scheduler.

    Notes
    -----
    Not thread-safe. One question is under way at a time, so a scheduler that was stopped has one answer to give.
    """

    def __init__(
        self,
        node: Client | Worker,
        question: Question[T],
        every_secs: float,
        who: str | None = None,
        failure: Callable[[float], Exception] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._question = question
        self._every_secs = every_secs
        self._who = who or _name(node)
        self._failure = failure or (lambda secs: silence(node))
        self._clock = clock
        self._looked_at = clock()
        self._silent_secs = 0.0
        """Since the last answer, or the question after it."""
        self._has_warned = False
        self._next_question = Deadline(0.0, clock)
        self._answer: Future[T] | None = None

    def look(self) -> T | None:
        """Return an answer, if there is a new one. Does not block; must be called several times a second.

        Raises `failure` of the limit in seconds, by default a WaitTimeoutError, if the scheduler is silent for longer.
        """
        now = self._clock()
        self._silent_secs += min(now - self._looked_at, LOOK_SECS)
        self._looked_at = now
        answer = None
        if self._answer is None:
            if self._next_question.has_passed:
                self._next_question = Deadline(self._every_secs, self._clock)
                self._answer = put(self._node, self._question)
        elif self._answer.done():
            answer = self._taken(self._answer)
            self._answer = None
        if self._silent_secs >= SILENCE_SECS:
            raise self._failure(SILENCE_SECS)
        if self._silent_secs >= WARN_SECS and not self._has_warned:
            self._has_warned = True
            line = "%s has not answered for %.0f s; check whether it is stopped. This process waits for it, and %s"
            logger.warning(line, self._who, WARN_SECS, f"ends after {SILENCE_SECS:.0f} s")
        return answer

    def close(self) -> None:
        """Stop waiting for an answer. Idempotent."""
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None

    def _taken(self, answer: Future[T]) -> T | None:
        """Return the answer; None if the connection broke, as the next question may come through."""
        try:
            result = answer.result()
        except (OSError, CancelledError):
            return None
        if self._has_warned:
            logger.warning("%s answers again", self._who)
        self._silent_secs, self._has_warned = 0.0, False
        return result


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
