"""Waiting for sockets: asleep as a rule, awake for a moment where the next message is about to come."""

from __future__ import annotations

import selectors
import time

__all__ = ["Ready", "Waiting"]

Ready = list[tuple[selectors.SelectorKey, int]]

_DISTURBED_SECS = 0.0003
"""Between two looks, which take some microseconds: somebody else computes on this core, or wants to."""
_LEAST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 0.01, 1.0
"""How long all waits are spent asleep after that: longer each time, and less again while it does not happen."""


class Waiting:
    """Waits with a selector; awake, for a bounded time, where the last wait was short and nobody wants the core."""

    def __init__(self, selector: selectors.BaseSelector, awake_secs: float) -> None:
        self._selector = selector
        self._awake_secs = awake_secs
        self._was_short = False
        self._asleep_until = 0.0
        self._pause_secs = _LEAST_PAUSE_SECS

    def select(self, timeout_secs: float) -> Ready:
        """Return what is ready, as ``BaseSelector.select`` does, after at most `timeout_secs`."""
        if not self._awake_secs:
            return self._selector.select(timeout_secs)
        began_at = time.monotonic()
        ready: Ready = []
        if self._was_short and began_at >= self._asleep_until:
            ready = self._select_awake(began_at, began_at + min(self._awake_secs, timeout_secs))
        if not ready:
            ready = self._selector.select(timeout_secs)
            self._was_short = bool(ready) and time.monotonic() - began_at < self._awake_secs
        return ready

    def _select_awake(self, began_at: float, deadline: float) -> Ready:
        is_disturbed = False
        looked_at = began_at
        while True:
            ready = self._selector.select(0)
            now = time.monotonic()
            is_disturbed |= now - looked_at > _DISTURBED_SECS
            looked_at = now
            if ready or now >= deadline:
                break
        if is_disturbed:
            self._asleep_until = now + self._pause_secs
            self._pause_secs = min(2 * self._pause_secs, _LONGEST_PAUSE_SECS)
        else:
            self._pause_secs = max(0.95 * self._pause_secs, _LEAST_PAUSE_SECS)
        return ready
