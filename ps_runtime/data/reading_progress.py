"""Reports the progress of reading input to a watcher, or to the log if there is none."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta

from psflow.ps_runtime.deadline import Deadline

logger = logging.getLogger(__name__)

LOG_EVERY_SECS = 10.0
TICK_SECS = 1.0
GB = 10**9


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """The progress of a scan.

    Examples
    --------
    >>> str(ScanProgress("the train input", 1_200_000_000, 20_000_000_000, 10.0))
    'reading the train input: 1.2 of 20.0 GB (6 %), 120 MB/s, ETA 0:02:37'
    """

    where: str
    done_bytes: int
    num_bytes: int
    secs: float

    @property
    def has_ended(self) -> bool:
        """Whether all bytes are read."""
        return self.done_bytes >= self.num_bytes

    def __str__(self) -> str:
        done = f"{self.done_bytes / GB:.1f} of {self.num_bytes / GB:.1f} GB"
        bytes_per_sec = self.done_bytes / max(self.secs, 1e-9)
        left = timedelta(seconds=round((self.num_bytes - self.done_bytes) / bytes_per_sec))
        percent = 100 * self.done_bytes // self.num_bytes
        return f"reading {self.where}: {done} ({percent} %), {bytes_per_sec / 1e6:.0f} MB/s, ETA {left}"


@dataclass(frozen=True, slots=True)
class CallProgress:
    """The time that a function of the user has been running.

    Examples
    --------
    >>> str(CallProgress("the input_fn points in train mode", 10.2))
    'the input_fn points in train mode has been running for 10 s'
    """

    where: str
    secs: float
    has_ended: bool = False

    def __str__(self) -> str:
        return f"{self.where} has been running for {self.secs:.0f} s"


ProgressWatcher = Callable[[ScanProgress | CallProgress], None]
"""Receives a scan after each chunk, in its thread, and a call every second, in another thread; must not block."""

_watcher: ContextVar[ProgressWatcher | None] = ContextVar("psflow_progress_watcher", default=None)


class LoggedProgress:
    """Logs long reads every ten seconds."""

    def __init__(self, say: Callable[[str], object] = logger.info, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._wait = Deadline(LOG_EVERY_SECS, clock)

    def __call__(self, progress: ScanProgress | CallProgress) -> None:
        """Log the progress if it is due."""
        if self._wait.has_passed and progress.secs >= LOG_EVERY_SECS and not progress.has_ended:
            self._wait = Deadline(LOG_EVERY_SECS, self._clock)
            self._say(str(progress))


@contextmanager
def watched_by(watcher: ProgressWatcher) -> Iterator[None]:
    """Report what this thread reads in the block to `watcher`."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def watch_scan(where: str) -> Callable[[int, int], None]:
    """Return the function to call after each chunk of a scan that starts now, with the bytes done and in total."""
    watcher = _watcher.get() or LoggedProgress()
    began = time.monotonic()

    def report(done_bytes: int, num_bytes: int) -> None:
        watcher(ScanProgress(where, done_bytes, num_bytes, time.monotonic() - began))

    return report


@contextmanager
def watched_call(where: str) -> Iterator[None]:
    """Report that a function of the user is running during the block."""
    watcher = _watcher.get() or LoggedProgress()  # the ticking thread does not inherit this context
    began = time.monotonic()
    has_ended = threading.Event()

    def tick() -> None:
        has_ended.wait(TICK_SECS)
        while not has_ended.is_set():
            watcher(CallProgress(where, time.monotonic() - began))
            if has_ended.wait(TICK_SECS):
                watcher(CallProgress(where, time.monotonic() - began, has_ended=True))

    thread = threading.Thread(target=tick, name="psflow-watched-call", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
