"""The hooks that report numbers: loss and speed, and the summaries of model_fn.

What the chief reports has its plain name in MLflow; what worker 0 reports, such as its loss, is ``role/worker-0/loss``.
"""

from __future__ import annotations

import time
from typing import Any

from psflow.ps_runtime.model.hook_timer import check_period
from psflow.ps_runtime.model.hooks import (
    Coordinator,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

__all__ = ["StepCounterHook", "SummarySaverHook"]


class _Period:
    """Every multiple of so many steps, or every so many seconds, from the start on."""

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
    """Report ``loss``, ``steps_per_sec``, ``examples_per_sec`` and ``staleness``.

    The loss is that of the step; steps and examples per second, and the staleness of this replica's pushes, are of the
    time since the last report. The chief has such a hook, of `RunConfig.log_step_count_steps`.

    Parameters
    ----------
    every_n_steps : int, optional
        Report about at each multiple of it, of global_step; or
    every_n_secs : float, optional
        every so many seconds. Exactly one of them: ``every_n_steps=None`` goes with seconds.

    Raises
    ------
    UsageError
        If not exactly one period is given, or it is not greater than 0.
    """

    def __init__(self, every_n_steps: int | None = 100, every_n_secs: float | None = None) -> None:
        check_period(every_n_steps=every_n_steps, every_n_secs=every_n_secs)
        self._period = _Period(every_n_steps, every_n_secs)

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Begin to count."""
        self._period.start(session.global_step)
        self._num_pushes = self._staleness_sum = 0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetch the loss."""
        return SessionRunArgs(["loss", "global_step"])

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Report, if it is time to."""
        loss, global_step = run_values.results
        session = run_context.session
        self._num_pushes += 1
        self._staleness_sum += session.staleness
        if not self._period.is_over(global_step):
            return
        rate = self._period.rate(global_step)
        values = {
            "loss": loss,
            "steps_per_sec": rate,
            "examples_per_sec": rate * session.num_examples * session.gradients_per_step,
            "staleness": self._staleness_sum / self._num_pushes,
        }
        session.report(global_step, values)
        self._period.start(global_step)
        self._num_pushes = self._staleness_sum = 0


class SummarySaverHook(SessionRunHook):
    """Report the summaries of model_fn. The chief has such a hook, of `RunConfig.save_summary_steps`.

    Parameters
    ----------
    save_steps : int, optional
        Report about at each multiple of it, of global_step; or
    save_secs : float, optional
        every so many seconds. Exactly one of them.

    Raises
    ------
    UsageError
        If not exactly one period is given, or it is not greater than 0.
    """

    def __init__(self, save_steps: int | None = None, save_secs: float | None = None) -> None:
        check_period(save_steps=save_steps, save_secs=save_secs)
        self._period = _Period(save_steps, save_secs)

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Begin to count."""
        self._period.start(session.global_step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Report, if it is time to."""
        session = run_context.session
        if not self._period.is_over(session.global_step):
            return
        if session.summaries:
            session.report(session.global_step, session.summaries)
        for name, summary in session.file_summaries.items():
            session.put_file(session.global_step, name + summary.suffix, summary.content(session.global_step))
        self._period.start(session.global_step)
