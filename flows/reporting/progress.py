"""Progress line at the bottom of a terminal, updated in place below the log."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Self, assert_never

from prefect.logging.handlers import PrefectConsoleHandler
from rich.console import Console
from rich.live import Live
from rich.text import Text

from psflow.ps_runtime.roles.events import (
    Checkpoint,
    Evaluation,
    Export,
    FirstStep,
    Metrics,
    RecordedEvent,
    Restored,
    RoleLost,
    WorkersMissing,
)

WINDOW_SECS = 30.0
"""Window of the mean rate; longer if reports are rare."""
MIN_REPORTS = 5
SETTLED_SECS = 5.0
SETTLED_WITHIN = 0.2
"""Largest difference of the rates in the two halves of the window, relative to the mean."""


class Rate:
    """Steps per second over the last half minute, and whether the rate is stable."""

    def __init__(self) -> None:
        self._reports: deque[tuple[float, int]] = deque()

    def add(self, now: float, step: int) -> None:
        """Add a report; a step before the last one (a ps was restored) starts a new window."""
        if self._reports and step < self._reports[-1][1]:
            self._reports.clear()
        if self._reports and step == self._reports[-1][1]:
            return
        self._reports.append((now, step))
        while len(self._reports) > MIN_REPORTS and now - self._reports[0][0] > WINDOW_SECS:
            self._reports.popleft()

    def per_sec(self) -> float | None:
        """Return steps per second; None before the second report."""
        return _slope(self._reports[0], self._reports[-1]) if len(self._reports) > 1 else None

    def remaining_secs(self, step: int, now: float) -> float | None:
        """Return the seconds from `now` until `step`; None until the rate is stable."""
        if len(self._reports) < MIN_REPORTS:
            return None
        first, middle, last = self._reports[0], self._reports[len(self._reports) // 2], self._reports[-1]
        early, late, mean = _slope(first, middle), _slope(middle, last), _slope(first, last)
        if last[0] - first[0] < SETTLED_SECS or abs(late - early) > SETTLED_WITHIN * mean:
            return None
        return max(0.0, (step - last[1]) / mean - (now - last[0]))


class Progress:
    """Progress of a running job as one line.

    Examples
    --------
    >>> progress = Progress(1500, "accuracy")
    >>> progress.handle(Metrics(600, {"loss": 0.1275}))
    >>> progress.handle(Evaluation(600, {"accuracy": 0.9722}, checkpoint_saved_at=0.0))
    >>> progress.line()
    'step 600/1500 (40 %), loss 0.1275, evaluated 600: accuracy 0.9722'
    """

    def __init__(
        self, max_steps: int | None, best_metric: str = "loss", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_steps = max_steps
        self._best_metric = best_metric
        self._clock = clock
        self._rate = Rate()
        self._loss: float | None = None
        self._evaluated = self._best = ""
        self._num_restarts = 0
        self._missing = ""
        self.step = self.num_lost_steps = 0
        self.first_step_at: float | None = None

    def handle(self, event: FirstStep | Restored | RoleLost | WorkersMissing | RecordedEvent) -> None:
        """Process an event of a role."""
        match event:
            case RoleLost():
                self._num_restarts += 1
            case WorkersMissing():
                has_any = event.num_missing > 0
                self._missing = f"{event.num_missing} of {event.num_workers} workers missing" if has_any else ""
            case Restored():
                self.step = event.step
            case FirstStep():
                self.first_step_at = min(self.first_step_at or event.time, event.time)
            case Metrics():
                self._reach(event.step)
                if "steps_per_sec" in event.values:  # of the chief, at each multiple of so many steps
                    self._rate.add(self._clock(), event.step)
                self._loss = event.values.get("loss", self._loss)
            case Checkpoint():
                self._reach(event.step)
            case Evaluation():
                of = f" on {event.name}" if event.name else ""
                self._evaluated = f"evaluated {event.step}{of}: {shown_metrics(event.metrics)}"
            case Export():
                if event.is_best:
                    value = event.metrics.get(self._best_metric)
                    what = "" if value is None else f" {self._best_metric} {value:.4g} at"
                    self._best = f"best{what} {event.step}"
            case _:
                assert_never(event)

    def figures(self) -> dict[str, float]:
        """Return figures with a curve of their own, if not 0: ``restarts`` of lost roles and ``lost_steps``."""
        figures = {"restarts": self._num_restarts, "lost_steps": self.num_lost_steps}
        return {name: float(value) for name, value in figures.items() if value}

    @property
    def percent(self) -> float | None:
        """Percentage of the training that is done; None if the end depends on the data."""
        return None if self._max_steps is None else min(100.0, 100 * self.step / self._max_steps)

    def line(self) -> str:
        """Return the line."""
        return ", ".join(part for part in self._parts() if part)

    def _parts(self) -> list[str]:
        if self.step == 0 and self._loss is None:
            return ["no step yet", self._evaluated, self._missing]
        percent, rate = self.percent, self._rate.per_sec()
        return [
            f"step {self.step}" if percent is None else f"step {self.step}/{self._max_steps} ({percent:.0f} %)",
            "" if rate is None else f"{rate:.4g} steps/s",
            "" if self._loss is None else f"loss {self._loss:.4g}",
            self._evaluated,
            self._best,
            self._missing,
            f"restarts {self._num_restarts}" if self._num_restarts else "",
            f"lost steps {self.num_lost_steps}" if self.num_lost_steps else "",
            self._remaining(),
        ]

    def _remaining(self) -> str:
        if self._max_steps is None or self.step >= self._max_steps:
            return ""
        secs = self._rate.remaining_secs(self._max_steps, self._clock())
        return "" if secs is None else f"ETA {timedelta(seconds=round(secs))}"

    def _reach(self, step: int) -> None:
        self.step = max(self.step, step)


def shown_metrics(values: Mapping[str, float]) -> str:
    """Format metrics for display.

    Examples
    --------
    >>> shown_metrics({"loss": 0.123456, "accuracy": 1.0})
    'loss 0.1235, accuracy 1'
    """
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())


def _slope(first: tuple[float, int], last: tuple[float, int]) -> float:
    return (last[1] - first[1]) / max(last[0] - first[0], 1e-9)


ONLY_ELSEWHERE = "psflow_not_on_terminals"

not_on_terminals = {ONLY_ELSEWHERE: True}
"""As `extra` of a log record: hides it in a terminal that shows the line, and nowhere else."""


class TerminalLine:
    """Shows the line during a ``with`` block; does nothing if stderr is not a terminal.

    Notes
    -----
    The line is drawn on the console of Prefect's log handler, so that log records and writes of this process to stdout
    and stderr appear above it. Writes of other processes may break the line once.
    """

    def __init__(self) -> None:
        handler = _console_handler()
        console = Console(stderr=True) if handler is None else handler.console
        self._handler = handler
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            if self._handler is not None:
                self._handler.addFilter(_is_for_terminals)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            if self._handler is not None:
                self._handler.removeFilter(_is_for_terminals)

    @property
    def is_shown(self) -> bool:
        """Whether a terminal shows the line."""
        return self._live is not None

    def show(self, line: str) -> None:
        """Replace the line."""
        if self._live is not None:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)


def _console_handler() -> PrefectConsoleHandler | None:
    return next((h for h in logging.getLogger().handlers if isinstance(h, PrefectConsoleHandler)), None)


def _is_for_terminals(record: logging.LogRecord) -> bool:
    return not getattr(record, ONLY_ELSEWHERE, False)
