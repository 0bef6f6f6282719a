"""What surrounds a role: who it is, whether it should end, and whom it tells of what it does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil

from psflow.ps_runtime.checkpoint.files import Fence, open_fence
from psflow.ps_runtime.protocol.message import Life
from psflow.ps_runtime.roles.events import Event, Metrics
from psflow.ps_runtime.roles.hearing import not_told
from psflow.ps_runtime.roles.pulse import Pulse
from psflow.ps_runtime.roles.role_metrics import RoleMetrics, Sample
from psflow.ps_runtime.specs.roles import RoleId

__all__ = ["RoleContext", "peak_rss_mb"]


@dataclass
class RoleContext:
    """The surroundings of one role."""

    role: RoleId
    incarnation: int
    check_liveness: Callable[[], None]
    send: Callable[[Event], None]
    is_leaving: Callable[[], bool] = lambda: False
    lost_replicas: SimpleQueue[Life] = field(default_factory=SimpleQueue)
    fence: Fence = open_fence
    pulse: Pulse = field(default_factory=Pulse)
    first_step_at: float | None = None
    _number: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _role_metrics: RoleMetrics | None = field(default=None, init=False)

    def check(self) -> None:
        """Raise StoppedError when the role is to end. To be called at least four times a second; thread-safe."""
        self.check_liveness()
        if self._role_metrics is not None:
            self._role_metrics.tell_if_due()

    def watch(self, sample: Callable[[], Sample]) -> None:
        """Tell from now on, in `check` and in `report`, how the role fares."""
        self._role_metrics = RoleMetrics(str(self.role), self.emit_metrics, sample)

    def emit(self, event: Event) -> None:
        """Send an event with the name of the role, its life and its next number. Thread-safe."""
        with not_told(), self._lock:  # Python may collect garbage here, and a finalizer may log
            self._number += 1
            self.send(replace(event, role=str(self.role), incarnation=self.incarnation, number=self._number))

    def emit_metrics(self, global_step: int, values: Mapping[str, float]) -> None:
        """Send metrics of this role at a global_step."""
        plain = {name: float(value) for name, value in values.items()}
        self.emit(Metrics(int(global_step), plain))

    def report(self, transport: str, statistics: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a role says of itself when all is well."""
        if self._role_metrics is not None:
            self._role_metrics.tell()
        return {"exit": "finished", "rss_mb": peak_rss_mb(), "transport": transport, "statistics": dict(statistics)}


def peak_rss_mb() -> float:
    """Return the largest memory that this process has held, in MB.

    Where the system does not tell (``getrusage`` counts the parent of a spawned process in), that of now.
    """
    try:
        status = Path("/proc/self/status").read_text()
        peak_kb = float(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError):
        return round(float(psutil.Process().memory_info().rss) / 2**20, 1)
    return round(peak_kb / 1024, 1)
