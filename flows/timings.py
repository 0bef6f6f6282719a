"""Records when the phases of a command end; ``psflow train --timings`` shows them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from psflow.ps_runtime.roles.events import (
    Checkpoint,
    Evaluation,
    Event,
    Export,
    FirstStep,
    LogMessage,
    Metrics,
    PsListening,
    Restored,
    RoleEnded,
    RoleLeaving,
    RoleLost,
    RoleStarted,
    SummaryFile,
    TrainingLoss,
    WorkersMissing,
)


class Timings:
    """Ends of phases, by name. Thread-safe.

    A phase that ends several times, such as an evaluation, has its last end; the first step its first one.
    """

    def __init__(self) -> None:
        self._ends: dict[str, tuple[float, float | None]] = {}

    def mark(self, phase: str) -> None:
        """Record that `phase` ends now, in this process."""
        self._ends[phase] = time.time(), time.process_time()

    def handle(self, event: Event) -> None:
        """Record the end of a phase of a role, by the clock of its host."""
        match event:
            case FirstStep():
                self._ends.setdefault("first step", (event.time, None))
            case RoleStarted():
                self._last("roles started", event)
            case PsListening():
                self._last("ps listening", event)
            case TrainingLoss():
                if event.is_last:
                    self._last("last step", event)
            case Checkpoint() | Evaluation() | Export():
                self._last(f"last {type(event).__name__.lower()}", event)
            case RoleEnded():
                self._last(f"end of {event.role.rpartition('-')[0]}", event)
            case Restored() | Metrics() | SummaryFile() | LogMessage() | RoleLeaving() | RoleLost() | WorkersMissing():
                pass
            case _:
                assert_never(event)

    def _last(self, phase: str, event: Event) -> None:
        ended_at, _ = self._ends.get(phase, (0.0, None))
        self._ends[phase] = max(ended_at, event.time), None

    def facts(self) -> list[dict[str, Any]]:
        """Return all phases in the order of their ends, in seconds since the start of the process.

        ``secs`` is the time since the previous end, ``cpu_secs`` the processor time of this process since the previous
        phase that has one.
        """
        began_at = before = _start_of_this_process()
        cpu_before = 0.0
        rows = []
        for phase, (ended_at, cpu) in sorted(self._ends.copy().items(), key=lambda item: item[1][0]):
            row = {"phase": phase, "at_secs": ended_at - began_at, "secs": ended_at - before}
            if cpu is not None:
                row["cpu_secs"], cpu_before = cpu - cpu_before, cpu
            rows.append({key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()})
            before = ended_at
        return rows


def _start_of_this_process() -> float:
    """Return its Unix time. Linux counts it from the boot of the machine, which it tells only in whole seconds."""
    import psutil

    secs_after_boot = psutil.Process().create_time() - psutil.boot_time()
    return float(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + secs_after_boot)


def shown_timings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of `Timings.facts` for the terminal."""
    lines = [f"{'ends at':>9} {'seconds':>9} {'CPU':>7}  phase"]
    for row in rows:
        cpu = f"{row['cpu_secs']:7.2f}" if "cpu_secs" in row else " " * 7
        lines.append(f"{row['at_secs']:9.2f} {row['secs']:9.2f} {cpu}  {row['phase']}")
    return lines


timings = Timings()
"""Those of this process: a command runs once."""
