"""Whether a thread goes on with its rounds, for those who look at it from another thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Pulse"]


class Pulse:
    """A number that grows as long as a thread makes its rounds.

    Notes
    -----
    Thread-safe: one thread beats, any thread reads.

    Examples
    --------
    >>> pulse = Pulse()
    >>> pulse.read() is None  # nobody makes rounds yet
    True
    >>> with pulse.rounds():
    ...     pulse.beat()
    ...     first, second = pulse.read(), pulse.read()
    >>> first == second
    True
    """

    def __init__(self) -> None:
        self._count = 0
        self._makes_rounds = False
        self._is_in_long_call = False

    def beat(self) -> None:
        """Take note that a further round is made."""
        self._count += 1

    @contextmanager
    def rounds(self) -> Iterator[None]:
        """Make rounds as long as the block lasts, each with a beat."""
        self._makes_rounds = True
        try:
            yield
        finally:
            self._makes_rounds = False

    @contextmanager
    def long_call(self) -> Iterator[None]:
        """Do something that may take as long as it likes, within a round."""
        self._is_in_long_call = True
        try:
            yield
        finally:
            self._is_in_long_call = False

    def read(self) -> int | None:
        """Return another number than before if the thread goes on, or is in a long call; None if it makes no rounds."""
        if self._is_in_long_call:
            self.beat()
        return self._count if self._makes_rounds else None
