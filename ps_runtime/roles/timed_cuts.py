"""Cuts by seconds: asked for by the chief after its steps, and while it waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["TimedCuts"]


class Saver(Protocol):
    """Who makes the cuts."""

    last_cut_at: float


class TimedCuts:
    """Asks for a cut once so many seconds have passed since the last one.

    Notes
    -----
    Not thread-safe.
    """

    def __init__(
        self, saver: Saver, secs: float | None, request: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._saver = saver
        self._secs = secs
        self._request = request
        self._clock = clock
        self._is_open = False

    def open(self) -> None:
        """Begin to look at the clock: the job is open."""
        self._is_open = True

    def look(self) -> None:
        """Ask for a cut if it is time. Blocks until ps-0 has heard of it, not until the cut is made."""
        now = self._clock()
        if self._is_open and self._secs is not None and now - self._saver.last_cut_at >= self._secs:
            self._saver.last_cut_at = now
            self._request()
