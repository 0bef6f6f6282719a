"""Waits for messages that are spent awake, where there is a core for each role of a step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Found = TypeVar("Found")

AWAKE_SECS = 0.001
"""A step of a small model: for longer ones the time to wake up a role does not matter."""
_DISTURBED_SECS = 0.0003
"""Looks take microseconds: if two are this far apart, another process uses this core, or wants to."""
_LEAST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 0.01, 1.0
"""How long all waits are spent asleep after that: longer each time, and shorter again while it does not happen."""


def awake_secs(num_roles: int) -> float:
    """Return how much of a wait each ps and replica may spend awake: nothing if the job has more of them than cores."""
    if not hasattr(os, "sched_getaffinity"):
        return 0.0  # this system does not say which cores are ours
    return AWAKE_SECS if num_roles <= len(os.sched_getaffinity(0)) else 0.0


class Spin(Generic[Found]):
    """The beginning of a wait, which is spent awake if the last wait was short and the core is free.

    Parameters
    ----------
    look : callable
        Returns what is waited for, or something false; does not block.
    awake_secs : float
        How much of a wait may be spent awake; 0: nothing.
    """

    def __init__(self, look: Callable[[], Found], awake_secs: float) -> None:
        self._look = look
        self._awake_secs = awake_secs
        self._was_short = False
        self._began_at = self._asleep_until = 0.0
        self._pause_secs = _LEAST_PAUSE_SECS

    def begin(self, timeout_secs: float) -> Found | None:
        """Begin a wait of at most `timeout_secs`, and return what is found while awake; else the caller sleeps."""
        if not self._awake_secs:
            return None
        self._began_at = time.monotonic()
        if not self._was_short or self._began_at < self._asleep_until:
            return None
        return self._look_until(self._began_at + min(self._awake_secs, timeout_secs))

    def slept(self, *, was_enough: bool) -> None:
        """Note the end of the sleep after `begin`, and whether what was waited for is there."""
        if self._awake_secs:
            self._was_short = was_enough and time.monotonic() - self._began_at < self._awake_secs

    def _look_until(self, deadline: float) -> Found:
        is_disturbed = False
        looked_at = self._began_at
        while True:
            found = self._look()
            now = time.monotonic()
            is_disturbed |= now - looked_at > _DISTURBED_SECS
            looked_at = now
            if found or now >= deadline:
                break
        if is_disturbed:
            self._asleep_until = now + self._pause_secs
            self._pause_secs = min(2 * self._pause_secs, _LONGEST_PAUSE_SECS)
        else:
            self._pause_secs = max(0.95 * self._pause_secs, _LEAST_PAUSE_SECS)
        return found
