"""Signals that go to a whole group of processes, as Ctrl-C does, and are for one of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OF_THE_OWNER", "signals_blocked"]

OF_THE_OWNER = (signal.SIGINT, signal.SIGTERM)
"""They are for the owner of a cluster or a server; processes that it has started do not take them."""


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block these signals: a process that is started in the block has them blocked as it begins."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_OWNER)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
