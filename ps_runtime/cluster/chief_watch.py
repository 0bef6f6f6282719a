"""Watches from another process of a manually started cluster whether the chief answers.

A stopped chief keeps its connections, so no connection breaks, and a process that waits for it would wait for ever.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from psflow.ps_runtime.errors import StoppedError

ASK_SECS = 5.0
"""From an answer to the next question."""
WARN_SECS = 30.0
GIVE_UP_SECS = 300.0
"""Dask's worker-ttl: after that the scheduler of a chief that continues has removed this process."""
LOOK_SECS = 1.0
"""Maximum time that one look adds; during a longer gap this process did not observe the chief."""

logger = logging.getLogger(__name__)


class ChiefWatch:
    """Asks the chief repeatedly for an answer, warns once it does not answer, and gives up after minutes.

    Time counts only while this process looks: one that was itself stopped knows nothing of the chief.

    Notes
    -----
    Not thread-safe. One question is under way at a time, so a chief that was stopped has one answer to give.
    """

    def __init__(
        self,
        role: str,
        chief: str,
        ask: Callable[[], Coroutine[Any, Any, Any]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._role = role
        self._chief = chief
        self._ask = ask
        self._clock = clock
        self._looked_at = clock()
        self._silent_secs = 0.0
        self._has_warned = False
        self._question: asyncio.Task[Any] | None = None

    def look(self) -> None:
        """Record the time, and an answer if there is one. Must be called several times a second, in an event loop.

        Raises StoppedError if the chief has not answered for too long.
        """
        now = self._clock()
        self._silent_secs += min(now - self._looked_at, LOOK_SECS)
        self._looked_at = now
        if self._question is None:
            if self._silent_secs >= ASK_SECS:
                self._question = asyncio.ensure_future(self._ask())
        elif self._question.done():
            self._take(self._question)
            self._question = None
        self._judge()

    def close(self) -> None:
        """Stop waiting for an answer. Idempotent."""
        if self._question is not None:
            self._question.cancel()

    def _take(self, question: asyncio.Task[Any]) -> None:
        if question.cancelled() or question.exception() is not None:  # Dask reports a lost connection
            return
        if self._has_warned:
            logger.warning("%s answers again", self._chief)
        self._silent_secs, self._has_warned = 0.0, False

    def _judge(self) -> None:
        if self._silent_secs >= GIVE_UP_SECS:
            what = f"{self._chief} did not answer for {GIVE_UP_SECS:g} s; check whether it is stopped, and end it; then"
            raise StoppedError(self._role, f"{what} start all processes again to resume")
        if self._silent_secs >= WARN_SECS and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%s has not answered for %.0f s; check whether it is stopped. This process waits for it, and "
                "ends after %.0f s",
                self._chief,
                WARN_SECS,
                GIVE_UP_SECS,
            )
