"""Waiting for sockets: asleep as a rule, awake for a moment where the next message is about to come."""

from __future__ import annotations

import resource
import selectors
import time

__all__ = ["Ready", "Waiting"]

Ready = list[tuple[selectors.SelectorKey, int]]

_LEAST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 0.01, 1.0
"""How long all waits are spent asleep after somebody else wanted the core: longer each time, and soon less if not."""


class Waiting:
    """Waits with a selector; awake, for a bounded time, where the last wait was short and nobody wants the core.

    Parameters
    ----------
    selector : BaseSelector
    awake_secs : float
        How much of a wait may be spent awake; 0: always asleep. To wake up a core that sleeps takes tens of
        microseconds, and to stay awake takes a core.
    """

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
            ready = self._select_awake(began_at + min(self._awake_secs, timeout_secs))
        if not ready:
            ready = self._selector.select(timeout_secs)
            self._was_short = bool(ready) and time.monotonic() - began_at < self._awake_secs
        return ready

    def _select_awake(self, deadline: float) -> Ready:
        num_preemptions = _num_preemptions()
        while not (ready := self._selector.select(0)) and time.monotonic() < deadline:
            pass
        if _num_preemptions() > num_preemptions:
            self._asleep_until = time.monotonic() + self._pause_secs
            self._pause_secs = min(2 * self._pause_secs, _LONGEST_PAUSE_SECS)
        else:
            self._pause_secs = max(0.95 * self._pause_secs, _LEAST_PAUSE_SECS)
        return ready


def _num_preemptions() -> int:
    """Return how often this thread has lost its core to another."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
