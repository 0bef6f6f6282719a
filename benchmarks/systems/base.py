"""A system under measurement: processes that report their progress, and can be held and resumed."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from benchmarks.processes import cpu_secs, hold, let_go
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import WaitTimeoutError

__all__ = ["POLL_SECS", "Progress", "System"]

POLL_SECS = 0.05


class Progress:
    """How many steps were done when, by those who count them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: dict[str, list[float]] = defaultdict(list)
        self._steps: dict[str, list[int]] = defaultdict(list)

    def add(self, source: str, step: int, time: float) -> None:
        """Take a report: `source` had counted to `step` at `time` on the system's monotonic clock, in seconds."""
        with self._lock:
            self._times[source].append(time)
            self._steps[source].append(step)

    def num_reports(self, source: str) -> int:
        """Return how many reports came from `source`."""
        with self._lock:
            return len(self._times[source])

    def reports(self, source: str) -> list[tuple[int, float]]:
        """Return the steps that `source` has reported, and when they were done."""
        with self._lock:
            return list(zip(self._steps[source], self._times[source], strict=True))

    def rate(self, start: float, stop: float) -> float | None:
        """Return the steps per second of all sources together, within a window of time.

        Each source counts from its first report in the window to its last; None if one has not two of them.
        """
        with self._lock:
            rates = [self._rate_of(source, start, stop) for source in self._times]
        return None if not rates or None in rates else sum(rate for rate in rates if rate is not None)

    def _rate_of(self, source: str, start: float, stop: float) -> float | None:
        times, steps = self._times[source], self._steps[source]
        first, last = bisect_left(times, start), bisect_right(times, stop) - 1
        if last <= first:
            return None
        return (steps[last] - steps[first]) / (times[last] - times[first])


class System(ABC):
    """Processes that make steps.

    Parameters
    ----------
    name : str
        For error texts.

    Notes
    -----
    `start` leaves it held. Not thread-safe.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.progress = Progress()

    @property
    @abstractmethod
    def roles(self) -> Mapping[str, int]:
        """The process of each of its roles, by name."""

    @property
    def pids(self) -> Sequence[int]:
        """Its processes."""
        return list(self.roles.values())

    @abstractmethod
    def start(self) -> None:
        """Start it, wait until all of it is at work, hold it. After an error `close` ends the started processes."""

    @abstractmethod
    def check(self) -> None:
        """Raise what ended it, if anything did."""

    @abstractmethod
    def close(self) -> None:
        """End it and wait until it has ended. Idempotent."""

    def hold(self) -> None:
        """Stop it where it is."""
        hold(self.pids)

    def let_go(self) -> None:
        """Let it go on."""
        let_go(self.pids)

    def cpu_secs(self) -> float:
        """Return the CPU seconds it has used so far."""
        return cpu_secs(self.pids)

    def await_work(self, is_at_work: Callable[[], bool], timeout_secs: float) -> None:
        """Wait until it is at work.

        Raises
        ------
        WaitTimeoutError
            After `timeout_secs`.
        """
        deadline = Deadline(timeout_secs)
        while not is_at_work():
            self.check()
            if deadline.has_passed:
                raise WaitTimeoutError(self.name, "start training", timeout_secs)
            time.sleep(POLL_SECS)
