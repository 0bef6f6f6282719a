"""Limits waits by timeouts, and by the time that a signal leaves to this process."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable

ROLES_SECS = 3.0
"""After a signal: by then roles have ended, or their processes are killed."""
RECORDS_SECS = 7.0
"""By then Prefect and MLflow have their records, or the next command sends them."""
END_SECS = 8.0
"""By then this process and its child processes have ended, or are killed."""


class Deadline:
    """A moment a number of seconds from now.

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
        """The initial number, for the error of a wait that timed out."""
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


class StopClock:
    """Runs from the signal that asks this process to end; waits take their time from it.

    Only a command of psflow arms it: there something ends the process when the time is over. Elsewhere waits have their
    own timeouts.

    Examples
    --------
    >>> now = 5.0
    >>> clock = StopClock(lambda: now)
    >>> clock.arm()
    >>> clock.limited(30.0)
    30.0
    >>> clock.begin(signal.SIGTERM)
    >>> now = 10.0
    >>> clock.limited(30.0), clock.limited(1.0)
    (2.0, 1.0)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.received: signal.Signals | None = None
        self._clock = clock
        self._is_armed = False
        self._began_at = math.inf

    def arm(self) -> None:
        """Start to count signals."""
        self._is_armed = True

    def begin(self, received: signal.Signals) -> None:
        """Start the clock, unless it runs already. May be called in a signal handler and in any thread."""
        if self._is_armed and self.received is None:
            self._began_at = self._clock()
            self.received = received

    def left(self, secs: float) -> float:
        """Return how much is left of the first `secs` after the signal; infinity without a signal."""
        return math.inf if self.received is None else max(0.0, self._began_at + secs - self._clock())

    def limited(self, timeout_secs: float) -> float:
        """Return `timeout_secs`, or less if a signal leaves less time for records."""
        return min(timeout_secs, self.left(RECORDS_SECS))


stop_clock = StopClock()
"""The clock of this process."""
