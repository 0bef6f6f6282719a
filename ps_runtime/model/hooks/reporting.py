"""Hooks that report: logged values, loss and speed, summaries, and profiles of steps.

Reports of the chief keep their names in MLflow; those of worker 0, such as its loss, are ``role/worker-0/loss``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from psflow.ps_runtime.model.hooks.base import (
    Coordinator,
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    check_period,
)
from psflow.ps_runtime.specs.arguments import ArgumentFaults

logger = logging.getLogger(__name__)


class LoggingTensorHook(SessionRunHook):
    """Logs fetched values at a given period, at level INFO: ``loss = 0.5, global_step = 100 (1.240 sec)``.

    Parameters
    ----------
    tensors : str, or sequence or mapping of str
        Names as in SessionRunArgs; a mapping gives them titles, which are logged in alphabetical order.
    every_n_iter : int, optional
        Log every so many runs of this role, starting with its first.
    every_n_secs : float, optional
        Log every so many seconds. Give at most one of them; none only with `at_end`.
    at_end : bool
        Whether to log at the end, too: the final variables and global_step, and the other values of the last run.
    formatter : callable, optional
        Converts the values by title to a line.

    Raises
    ------
    UsageError
        If no time to log is given, or a period is not greater than 0; an ArgumentTypeError for a wrong type.
    """

    def __init__(
        self,
        tensors: str | Sequence[str] | Mapping[str, str],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        _check_arguments(tensors, at_end, formatter)
        if isinstance(tensors, Mapping):
            self._tensors = {title: tensors[title] for title in sorted(tensors)}
        else:
            self._tensors = {name: name for name in ([tensors] if isinstance(tensors, str) else tensors)}
        self._timer: SecondOrStepTimer | None = None
        if every_n_iter is not None or every_n_secs is not None or not at_end:
            check_period(every_n_iter=every_n_iter, every_n_secs=every_n_secs)
            self._timer = SecondOrStepTimer(every_n_secs, every_n_iter)
        self._at_end = at_end
        self._formatter = formatter

    def begin(self) -> None:
        """Restart the count of runs."""
        if self._timer is not None:
            self._timer.reset()
        self._count = 0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetch the values, if this run is logged."""
        self._is_due = self._timer is not None and self._timer.should_trigger_for_step(self._count)
        return SessionRunArgs(self._tensors) if self._is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Log the values, if this run is logged."""
        if self._is_due:
            self._log(run_values.results)
        self._count += 1

    def end(self, session: Any) -> None:
        """Log the final values with `at_end`."""
        if self._at_end:
            self._log(session.run(self._tensors))

    def _log(self, values: Mapping[str, Any]) -> None:
        secs = None if self._timer is None else self._timer.update_last_triggered_step(self._count)[0]
        if self._formatter is not None:
            logger.info("%s", self._formatter(values))
            return
        with np.printoptions(suppress=True):
            line = ", ".join(f"{title} = {value}" for title, value in values.items())
        logger.info("%s", line if secs is None else f"{line} ({secs:.3f} sec)")


def _check_arguments(tensors: Any, at_end: Any, formatter: Any) -> None:
    faults = ArgumentFaults("LoggingTensorHook: ")
    named = [*tensors, *tensors.values()] if isinstance(tensors, Mapping) else tensors
    are_names = isinstance(named, Sequence) and all(isinstance(name, str) for name in named)
    if not are_names or isinstance(tensors, bytes):
        faults.add_type("tensors", "a name, or a sequence or mapping of names", tensors)
    faults.flag("at_end", at_end)
    if formatter is not None:
        faults.callable("formatter", formatter)
    faults.raise_any()


class _Period:
    """Triggers at every multiple of a number of steps, or every so many seconds, from the start on."""

    def __init__(self, steps: int | None, secs: float | None) -> None:
        self._steps = steps
        self._secs = secs

    def start(self, step: int) -> None:
        self.last_step, self._last_time = step, time.monotonic()

    def is_over(self, step: int) -> bool:
        if self._secs is not None:
            return step != self.last_step and time.monotonic() - self._last_time >= self._secs
        assert self._steps is not None
        return step // self._steps != self.last_step // self._steps

    def rate(self, step: int) -> float:
        """Return steps per second since the start of the period."""
        return (step - self.last_step) / max(time.monotonic() - self._last_time, 1e-9)


class StepCounterHook(SessionRunHook):
    """Reports ``loss``, ``steps_per_sec``, ``examples_per_sec`` and ``staleness``.

    The loss is that of the step; steps and examples per second, and the staleness of this replica's pushes, cover the
    time since the last report. The chief has such a hook, set by `RunConfig.log_step_count_steps`.

    Parameters
    ----------
    every_n_steps : int, optional
        Report at about each multiple of it, in global_step.
    every_n_secs : float, optional
        Report every so many seconds. Give exactly one of them: ``every_n_steps=None`` goes with seconds.

    Raises
    ------
    UsageError
        If not exactly one period is given, or it is not greater than 0.
    """

    def __init__(self, every_n_steps: int | None = 100, every_n_secs: float | None = None) -> None:
        check_period(every_n_steps=every_n_steps, every_n_secs=every_n_secs)
        self._period = _Period(every_n_steps, every_n_secs)

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Start counting."""
        self._period.start(session.global_step)
        self._num_pushes = self._staleness_sum = 0

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Report, if the period has passed."""
        session = run_context.session
        global_step = session.global_step
        self._num_pushes += 1
        self._staleness_sum += session.staleness
        if not self._period.is_over(global_step):
            return
        rate = self._period.rate(global_step)
        values = {
            "loss": session.loss,
            "steps_per_sec": rate,
            "examples_per_sec": rate * session.num_examples * session.gradients_per_step,
            "staleness": self._staleness_sum / self._num_pushes,
        }
        session.report(global_step, values)
        self._period.start(global_step)
        self._num_pushes = self._staleness_sum = 0


class SummarySaverHook(SessionRunHook):
    """Reports the summaries of model_fn. The chief has such a hook, set by `RunConfig.save_summary_steps`.

    Parameters
    ----------
    save_steps : int, optional
        Report at about each multiple of it, in global_step.
    save_secs : float, optional
        Report every so many seconds. Give exactly one of them.

    Raises
    ------
    UsageError
        If not exactly one period is given, or it is not greater than 0.
    """

    def __init__(self, save_steps: int | None = None, save_secs: float | None = None) -> None:
        check_period(save_steps=save_steps, save_secs=save_secs)
        self._period = _Period(save_steps, save_secs)

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Start counting."""
        self._period.start(session.global_step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Report, if the period has passed."""
        session = run_context.session
        if not self._period.is_over(session.global_step):
            return
        if session.summaries:
            session.report(session.global_step, session.summaries)
        for name, summary in session.file_summaries.items():
            session.put_file(session.global_step, name + summary.suffix, summary.content(session.global_step))
        self._period.start(session.global_step)


MAX_EVENTS = 200_000
"""Maximum number of events of a trace, about 20 MB; later events are dropped."""


class ProfilerHook(SessionRunHook):
    """Traces the function calls of one step at a given period, in Chrome's trace format.

    Writes ``timeline-<step>.json`` for ``chrome://tracing`` and https://ui.perfetto.dev. A traced step takes several
    times as long.

    Parameters
    ----------
    save_steps : int, optional
        Trace one step after each so many.
    save_secs : float, optional
        Trace one step after each so many seconds. Give exactly one of them.
    output_dir : str
        A local directory, created if needed. Default: the working directory of the role.

    Raises
    ------
    UsageError
        If not exactly one period is given, or it is not greater than 0; an ArgumentTypeError for a wrong type.
    """

    def __init__(self, save_steps: int | None = None, save_secs: float | None = None, output_dir: str = "") -> None:
        check_period(save_steps=save_steps, save_secs=save_secs)
        faults = ArgumentFaults("ProfilerHook: ")
        if not isinstance(output_dir, str | os.PathLike):
            faults.add_type("output_dir", "a str or path", output_dir)
        faults.raise_any()
        self._timer = SecondOrStepTimer(save_secs, save_steps)
        self._output_dir = output_dir
        self._trace: _Trace | None = None

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Start counting."""
        self._timer.update_last_triggered_step(session.global_step)

    def before_run(self, run_context: SessionRunContext) -> None:
        """Start a trace, if the period has passed."""
        if self._timer.should_trigger_for_step(run_context.session.global_step + 1):
            self._trace = _Trace()
            self._trace.start()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write the trace of this step, if there is one."""
        if self._trace is None:
            return
        events = self._trace.stop()
        self._trace = None
        step = run_context.session.global_step
        self._timer.update_last_triggered_step(step)
        path = Path(self._output_dir, f"timeline-{step}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"traceEvents": events}))
        logger.info("traced step %d into %s", step, path)


class _Trace:
    """The calls of this thread between `start` and `stop`."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._depth = 0
        self._ids = {"pid": os.getpid(), "tid": threading.get_native_id()}

    def start(self) -> None:
        self._former = sys.getprofile()
        sys.setprofile(self._note)

    def stop(self) -> list[dict[str, Any]]:
        sys.setprofile(self._former)
        for _ in range(self._depth):  # the calls that are open in stop()
            self._add("E", "")
        return self._events

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if len(self._events) >= MAX_EVENTS:
            sys.setprofile(self._former)
        elif event in ("call", "c_call"):
            code = frame.f_code
            name = code.co_qualname if event == "call" else getattr(argument, "__qualname__", repr(argument))
            self._add("B", f"{name} ({Path(code.co_filename).name})" if event == "call" else name)
            self._depth += 1
        elif self._depth:  # otherwise the call began before the trace
            self._add("E", "")
            self._depth -= 1

    def _add(self, phase: str, name: str) -> None:
        self._events.append({"ph": phase, "name": name, "ts": time.perf_counter_ns() / 1000, **self._ids})
