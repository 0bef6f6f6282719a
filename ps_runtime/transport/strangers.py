"""Connections of which nobody knows yet who is behind them."""

from __future__ import annotations

import math

__all__ = ["Strangers"]


class Strangers:
    """Connections that have not identified themselves yet, and how long they may take.

    Those that come by TCP may be anybody's: they have few seats, which the known never share. Where all are taken, the
    oldest gives way to a new one: an honest peer says HELLO at once, and is gone from here with the next look at it.
    """

    def __init__(self, max_remote: int, timeout_secs: float) -> None:
        self._max_remote = max_remote
        self._timeout_secs = timeout_secs
        self._deadlines: dict[int, float] = {}  # oldest first
        self._remote: dict[int, None] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, number: int) -> bool:
        return number in self._deadlines

    @property
    def num_remote(self) -> int:
        """How many of them came by TCP."""
        return len(self._remote)

    @property
    def next_deadline(self) -> float:
        """When the oldest has had its time; infinite if there is none."""
        return next(iter(self._deadlines.values()), math.inf)

    def add(self, number: int, now: float, *, is_remote: bool) -> int | None:
        """Take in connection `number`; return the number of the one that must give way to it, if one must."""
        oldest = next(iter(self._remote)) if is_remote and len(self._remote) >= self._max_remote else None
        self._deadlines[number] = now + self._timeout_secs
        if is_remote:
            self._remote[number] = None
        return oldest

    def is_remote(self, number: int) -> bool:
        """Whether connection `number` came by TCP and has not identified itself."""
        return number in self._remote

    def remove(self, number: int) -> None:
        """Forget connection `number`: it has identified itself, or is gone. Idempotent."""
        self._deadlines.pop(number, None)
        self._remote.pop(number, None)

    def late(self, now: float) -> list[int]:
        """Return the connections that have had their time."""
        return [number for number, deadline in self._deadlines.items() if deadline <= now]
