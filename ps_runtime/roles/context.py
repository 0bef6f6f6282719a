"""Holds the context of a role: its identity, its stop signal, and its channel for events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil

from psflow.ps_runtime.checkpoint.files import Fence, open_fence
from psflow.ps_runtime.protocol.message import Incarnation
from psflow.ps_runtime.roles.event_dispatch import without_events
from psflow.ps_runtime.roles.events import Event, Metrics
from psflow.ps_runtime.roles.role_metrics import RoleMetrics, RoleSample
from psflow.ps_runtime.specs.roles import RoleId


class Pulse:
    """A number that grows as long as a thread runs its loop.

    Notes
    -----
    Thread-safe: one thread beats, any thread reads.

    Examples
    --------
    >>> pulse = Pulse()
    >>> pulse.read() is None  # no loop runs yet
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
        """Record one more round."""
        self._count += 1

    @contextmanager
    def rounds(self) -> Iterator[None]:
        """Run a loop as long as the block lasts, each round with a beat."""
        self._makes_rounds = True
        try:
            yield
        finally:
            self._makes_rounds = False

    @contextmanager
    def long_call(self) -> Iterator[None]:
        """Do something that may take arbitrarily long, within a round."""
        self._is_in_long_call = True
        try:
            yield
        finally:
            self._is_in_long_call = False

    def read(self) -> int | None:
        """Return a new number if the thread is active, or is in a long call; None if it runs no loop."""
        if self._is_in_long_call:
            self.beat()
        return self._count if self._makes_rounds else None


@dataclass
class RoleContext:
    """The context of one role."""

    role: RoleId
    incarnation: int
    check_liveness: Callable[[], None]
    send: Callable[[Event], None]
    is_shutting_down: Callable[[], bool] = lambda: False
    lost_replicas: SimpleQueue[Incarnation] = field(default_factory=SimpleQueue)
    fence: Fence = open_fence
    pulse: Pulse = field(default_factory=Pulse)
    first_step_at: float | None = None
    _number: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _role_metrics: RoleMetrics | None = field(default=None, init=False)

    def check(self) -> None:
        """Raise StoppedError when the role is to end. Call it at least four times a second; thread-safe."""
        self.check_liveness()
        if self._role_metrics is not None:
            self._role_metrics.report_if_due()

    def watch(self, sample: Callable[[], RoleSample]) -> None:
        """Report from now on, in `check` and in `report`, the metrics of the role."""
        self._role_metrics = RoleMetrics(str(self.role), self.emit_metrics, sample)

    def emit(self, event: Event) -> None:
        """Send an event with the name of the role, its incarnation and its next number. Thread-safe."""
        with without_events(), self._lock:  # Python may collect garbage here, and a finalizer may log
            self._number += 1
            self.send(replace(event, role=str(self.role), incarnation=self.incarnation, number=self._number))

    def emit_metrics(self, global_step: int, values: Mapping[str, float]) -> None:
        """Send metrics of this role at a global_step."""
        plain = {name: float(value) for name, value in values.items()}
        self.emit(Metrics(int(global_step), plain))

    def report(self, transport: str, statistics: Mapping[str, Any]) -> dict[str, Any]:
        """Return the report of a role that ends without an error."""
        if self._role_metrics is not None:
            self._role_metrics.report_now()
        return {"exit": "finished", "rss_mb": peak_rss_mb(), "transport": transport, "statistics": dict(statistics)}


def peak_rss_mb() -> float:
    """Return the largest memory that this process has held, in MB.

    Where the system does not report it (``getrusage`` counts the parent of a spawned process in), return the present
    one.
    """
    try:
        status = Path("/proc/self/status").read_text()
        peak_kb = float(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError):
        return round(float(psutil.Process().memory_info().rss) / 2**20, 1)
    return round(peak_kb / 1024, 1)
