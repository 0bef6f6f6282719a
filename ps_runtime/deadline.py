"""The end of a wait: how much of its timeout is left."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Deadline"]


class Deadline:
    """A moment a number of seconds from now.

    Parameters
    ----------
    timeout_secs : float
        From now on; infinity is a deadline that never passes.
    clock : callable, optional
        Returns seconds that never go back.

    Examples
    --------
    >>> now = 5.0
    >>> deadline = Deadline(2.0, clock=lambda: now)
    >>> deadline.remaining_secs, deadline.has_passed
    (2.0, False)
    >>> now = 8.0
    >>> deadline.remaining_secs, deadline.has_passed
    (0.0, True)
    """

    __slots__ = ("_at", "_clock", "timeout_secs")

    def __init__(self, timeout_secs: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeout_secs = timeout_secs
        """What it began with, for the error of a wait that ran out of time."""
        self._clock = clock
        self._at = clock() + timeout_secs

    @property
    def has_passed(self) -> bool:
        """Whether no time is left."""
        return self._clock() >= self._at

    @property
    def remaining_secs(self) -> float:
        """The time that is left, 0 once the deadline has passed."""
        return max(0.0, self._at - self._clock())
