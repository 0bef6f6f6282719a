"""Checks periodically that Dask workers are there: the scheduler reports a removal, but only once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import CancelledError, Future
from typing import Any

from distributed import Client

from psflow.ps_runtime.cluster.scheduler_rpc import SILENCE_SECS, put, silence
from psflow.ps_runtime.deadline import Deadline

LOOK_SECS = 5.0
"""Between two questions."""


class Presence:
    """Finds Dask workers that are gone.

    Notes
    -----
    Not thread-safe.
    """

    def __init__(
        self, client: Client, clock: Callable[[], float] = time.monotonic, look_secs: float = LOOK_SECS
    ) -> None:
        self.workers: Mapping[str, Mapping[str, Any]] = {}
        """All Dask workers by address, as the last answer describes them; a new mapping for each answer."""
        self._client = client
        self._clock = clock
        self._look_secs = look_secs
        self._asked: Collection[str] = ()
        self._answer: Future[Mapping[str, Mapping[str, Any]]] | None = None
        self._next_question = Deadline(0.0, clock)
        self._silence: Deadline | None = None
        """Since the first question without an answer."""

    def missing(self, addresses: Collection[str]) -> set[str]:
        """Return those of `addresses` that the scheduler no longer lists. Does not block.

        Raises WaitTimeoutError if the scheduler has not answered for a long time.
        """
        if self._answer is not None and self._answer.done():
            present = self._taken()
            if present is not None:
                self._silence = None
                self.workers = present
                return set(self._asked) - present.keys()
        elif self._answer is None and self._next_question.has_passed:
            self._ask(addresses)
        if self._silence is not None and self._silence.has_passed:
            raise silence(self._client)
        return set()

    def close(self) -> None:
        """Stop waiting for an answer. Idempotent."""
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None

    def _taken(self) -> Mapping[str, Mapping[str, Any]] | None:
        """Return the answer; None if the connection broke, as the next question may come through."""
        assert self._answer is not None
        answer, self._answer = self._answer, None
        try:
            return answer.result()
        except (OSError, CancelledError):
            return None

    def _ask(self, addresses: Collection[str]) -> None:
        self._asked, self._next_question = tuple(addresses), Deadline(self._look_secs, self._clock)
        if self._silence is None:
            self._silence = Deadline(SILENCE_SECS, self._clock)
        self._answer = put(self._client, _described)


async def _described(scheduler: Any) -> Mapping[str, Mapping[str, Any]]:
    identity = await scheduler.identity(n_workers=-1)
    workers: Mapping[str, Mapping[str, Any]] = identity["workers"]
    return workers
