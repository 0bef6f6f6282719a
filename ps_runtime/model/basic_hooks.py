"""The hooks that ship: stop at a step, guard against NaN, log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.hooks import (
    Coordinator,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

__all__ = ["LoggingTensorHook", "NanTensorHook", "StepCounterHook", "StopAtStepHook", "SummaryHook"]

logger = logging.getLogger(__name__)

Report = Callable[[int, Mapping[str, float]], None]
"""Takes a global_step and values by name."""


class StopAtStepHook(SessionRunHook):
    """Stop at a global_step.

    Parameters
    ----------
    num_steps : int, optional
        Stop so many steps after the start; or
    last_step : int, optional
        stop at this global_step.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if (num_steps is None) == (last_step is None):
            raise UsageError(("StopAtStepHook takes num_steps or last_step, one of them",))
        self._num_steps = num_steps
        self._last_step = last_step

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Fix the last step, where it counts from the start."""
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = session.global_step + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetch the global_step."""
        return SessionRunArgs("global_step")

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Ask to stop once the last step is reached."""
        assert self._last_step is not None
        if run_values.results >= self._last_step:
            run_context.coordinator.request_stop(f"global_step {run_values.results} has reached {self._last_step}")


class NanTensorHook(SessionRunHook):
    """Guard against a loss or a gradient that is NaN or infinite. What such a step computed is never pushed.

    Parameters
    ----------
    fail_on_nan_loss : bool
        Whether such a step fails the job, with NanLossError or NanGradientError. Else it ends training: a warning is
        logged, the job writes its final checkpoint of the updates before that step, and finishes with that reason. A
        weight that becomes infinite by finite gradients fails the job either way, when its checkpoint is written.

    Notes
    -----
    Every training has one that fails, unless its hooks bring one.
    """

    def __init__(self, fail_on_nan_loss: bool = True) -> None:
        self._fails = fail_on_nan_loss

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Raise the fault of the step, or ask to stop for it."""
        fault = run_context.session.fault
        if fault is None:
            return
        if self._fails:
            raise fault
        logger.warning("%s; training ends", fault)
        run_context.coordinator.request_stop(str(fault))


class LoggingTensorHook(SessionRunHook):
    """Log fetched values every `every_n_iter` steps of this role.

    Parameters
    ----------
    tensors : str, or sequence or mapping of str
        Names as in SessionRunArgs; a mapping gives them titles.
    every_n_iter : int
        At least 1; the first step of a role is always logged.
    """

    def __init__(self, tensors: Sequence[str] | Mapping[str, str], every_n_iter: int = 100) -> None:
        names = [tensors] if isinstance(tensors, str) else tensors
        self._tensors = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
        self._every = _at_least_one("every_n_iter", every_n_iter)
        self._count = 0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetch the values, if this step is to be logged."""
        return SessionRunArgs(self._tensors if self._count % self._every == 0 else {})

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Log the values, if this step is to be."""
        if self._count % self._every == 0:
            logger.info(", ".join(f"{title} = {value}" for title, value in run_values.results.items()))
        self._count += 1


class StepCounterHook(SessionRunHook):
    """Report loss, speed and mean staleness about every `every_n_steps` of global_step.

    The loss is that of the step; steps and examples per second, and the staleness of this replica's pushes, are of the
    time since the last report.

    Parameters
    ----------
    report : callable ``(global_step, values)``
        Takes ``loss``, ``steps_per_sec``, ``examples_per_sec`` and ``staleness`` by name.
    every_n_steps : int
        At least 1.
    gradients_per_step : int
        Batches of an update: more than one in synchronous training.
    """

    def __init__(self, report: Report, every_n_steps: int = 100, gradients_per_step: int = 1) -> None:
        self._report = report
        self._every = _at_least_one("every_n_steps", every_n_steps)
        self._gradients_per_step = _at_least_one("gradients_per_step", gradients_per_step)

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Begin to count."""
        self._last_step = session.global_step
        self._last_time = time.monotonic()
        self._num_pushes = self._staleness_sum = 0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetch the loss."""
        return SessionRunArgs(["loss", "global_step"])

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Report, if it is time to."""
        loss, global_step = run_values.results
        self._num_pushes += 1
        self._staleness_sum += run_context.session.staleness
        if global_step // self._every == self._last_step // self._every:
            return
        now = time.monotonic()
        rate = (global_step - self._last_step) / max(now - self._last_time, 1e-9)
        values = {
            "loss": loss,
            "steps_per_sec": rate,
            "examples_per_sec": rate * run_context.session.num_examples * self._gradients_per_step,
            "staleness": self._staleness_sum / self._num_pushes,
        }
        self._report(global_step, values)
        self._last_step, self._last_time = global_step, now
        self._num_pushes = self._staleness_sum = 0


class SummaryHook(SessionRunHook):
    """Report the summaries of model_fn about every `every_n_steps` of global_step."""

    def __init__(self, report: Report, every_n_steps: int = 100) -> None:
        self._report = report
        self._every = _at_least_one("every_n_steps", every_n_steps)
        self._last_step = 0

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Begin to count."""
        self._last_step = session.global_step

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Report, if it is time to."""
        global_step = run_context.session.global_step
        if global_step // self._every == self._last_step // self._every:
            return
        summaries = run_context.session.summaries
        if summaries:
            self._report(global_step, {name: float(value) for name, value in summaries.items()})
        self._last_step = global_step


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise UsageError((f"{name} should be greater than 0, got {value}",))
    return value
