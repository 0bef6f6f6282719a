"""How far a scan of record files is, told to whoever watches it; without a watcher it goes to the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta

from psflow.ps_runtime.deadline import Deadline

__all__ = ["LoggedScans", "ScanProgress", "ScanWatcher", "told_of_scans", "watch_scan"]

logger = logging.getLogger(__name__)

LOG_EVERY_SECS = 10.0
GB = 10**9


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """How far a scan is.

    Parameters
    ----------
    where : str
        What is scanned.
    done_bytes, num_bytes : int
        What has been read so far, and what there is in all files; above 0.
    secs : float
        Since its begin.

    Examples
    --------
    >>> str(ScanProgress("the train input", 1_200_000_000, 20_000_000_000, 10.0))
    'reading the train input: 1.2 of 20.0 GB (6 %), 120 MB/s, ETA 0:02:37'
    """

    where: str
    done_bytes: int
    num_bytes: int
    secs: float

    def __str__(self) -> str:
        done = f"{self.done_bytes / GB:.1f} of {self.num_bytes / GB:.1f} GB"
        bytes_per_sec = self.done_bytes / max(self.secs, 1e-9)
        left = timedelta(seconds=round((self.num_bytes - self.done_bytes) / bytes_per_sec))
        percent = 100 * self.done_bytes // self.num_bytes
        return f"reading {self.where}: {done} ({percent} %), {bytes_per_sec / 1e6:.0f} MB/s, ETA {left}"


ScanWatcher = Callable[[ScanProgress], None]
"""Told after each chunk of a scan, in its thread; must not block."""

_watcher: ContextVar[ScanWatcher | None] = ContextVar("psflow_scan_watcher", default=None)


class LoggedScans:
    """Tells of scans in the log, every ten seconds.

    Parameters
    ----------
    say : callable
        Takes a line.
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, say: Callable[[str], object] = logger.info, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._wait = Deadline(LOG_EVERY_SECS, clock)

    def __call__(self, progress: ScanProgress) -> None:
        """Say it, if it is time."""
        if self._wait.has_passed:
            self._wait = Deadline(LOG_EVERY_SECS, self._clock)
            self._say(str(progress))


@contextmanager
def told_of_scans(watcher: ScanWatcher) -> Iterator[None]:
    """Have a watcher told of all scans that this thread makes in the block."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def watch_scan(where: str) -> Callable[[int, int], None]:
    """Return what is to be called after each chunk of a scan that begins now: with the bytes done, and those of all."""
    watcher = _watcher.get() or LoggedScans()
    began = time.monotonic()

    def tell(done_bytes: int, num_bytes: int) -> None:
        watcher(ScanProgress(where, done_bytes, num_bytes, time.monotonic() - began))

    return tell
