"""Reports the metrics of a role periodically: its speed, processor time, memory, and traffic."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from psflow.ps_runtime.errors import TransportError
from psflow.ps_runtime.latencies import Latencies

FIRST_SECS = 1.0
MAX_SECS = 10.0
"""Between two reports: often at first, for short jobs, then seldom, for long ones."""


@dataclass(frozen=True, slots=True)
class RoleSample:
    """The counts of a role so far; they only grow."""

    global_step: int
    bytes_sent: int | None = None
    bytes_received: int | None = None
    num_steps: int | None = None
    staleness_sum: int | None = None
    pulls: Sequence[int] | None = None
    pushes: Sequence[int] | None = None


class RoleMetrics:
    """Reports the load of a role, as metrics with names such as ``role/worker-0/steps_per_sec``.

    Notes
    -----
    The names are ``cpu_percent`` (100: one processor) and ``rss_mb`` of the process, which several roles may share;
    where bytes are counted ``sent_bytes_per_sec`` and ``received_bytes_per_sec``; for a role that takes steps
    ``steps_per_sec``, ``sent_bytes_per_step`` and ``received_bytes_per_step``, and for a replica ``staleness``, the
    mean over its pushes, ``pull_p95_ms`` and ``push_p95_ms``, which 95 % of its pulls and pushes take at most; all
    since the last report.
    """

    def __init__(
        self,
        role: str,
        report: Callable[[int, Mapping[str, float]], None],
        sample: Callable[[], RoleSample],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = f"role/{role}/"
        self._report = report
        self._sample = sample
        self._clock = clock
        self._process = psutil.Process()
        self._process.cpu_percent()  # starts counting
        self._lock = threading.Lock()
        self._last = sample()
        self._last_at = clock()
        self._wait_secs = FIRST_SECS
        self._due_at = self._last_at + self._wait_secs

    def report_if_due(self) -> None:
        """Report if it is time to. Cheap, thread-safe, does not block."""
        if self._clock() >= self._due_at:
            self.report_now()

    def report_now(self) -> None:
        """Report; not while a connection is lost, or another thread reports. Thread-safe, does not block."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            now, sample = self._clock(), self._sample()
            self._wait_secs = min(2 * self._wait_secs, MAX_SECS)
            self._due_at = now + self._wait_secs
            if sample.global_step >= 0 and now > self._last_at:
                values = self._values(sample, now - self._last_at)
                self._report(sample.global_step, {self._prefix + name: value for name, value in values.items()})
            self._last, self._last_at = sample, now
        except TransportError:
            return
        finally:
            self._lock.release()

    def _values(self, now: RoleSample, secs: float) -> dict[str, float]:
        last = self._last
        values = {
            "cpu_percent": self._process.cpu_percent(),
            "rss_mb": round(self._process.memory_info().rss / 2**20, 1),
        }
        num_steps = _grown(last.num_steps, now.num_steps)
        moved = {
            "sent_bytes": _grown(last.bytes_sent, now.bytes_sent),
            "received_bytes": _grown(last.bytes_received, now.bytes_received),
        }
        rates = {"steps": num_steps} | moved
        values |= {f"{name}_per_sec": count / secs for name, count in rates.items() if count is not None}
        if num_steps:
            values |= {f"{name}_per_step": count / num_steps for name, count in moved.items() if count is not None}
        staleness = _grown(last.staleness_sum, now.staleness_sum)
        if staleness is not None and num_steps:
            values["staleness"] = staleness / num_steps
        return values | _percentile("pull", last.pulls, now.pulls) | _percentile("push", last.pushes, now.pushes)


def _percentile(name: str, last: Sequence[int] | None, now: Sequence[int] | None) -> dict[str, float]:
    """Return the 95th percentile of the durations since the last report; nothing where there were none."""
    if last is None or now is None:
        return {}
    latencies = Latencies(now).since(last)
    return {f"{name}_p95_ms": latencies.percentile_ms(95)} if latencies.num_added else {}


def _grown(last: int | None, now: int | None) -> int | None:
    """Return by how much a count has grown; that of a new connection, or a restored shard, restarts."""
    if last is None or now is None:
        return None
    return now - last if now >= last else now
