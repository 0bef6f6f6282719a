"""A job that a new process can take part in soon: nothing here imports more than roles need."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from psflow import (
    CheckpointSaverListener,
    Dataset,
    EstimatorSpec,
    EvalSpec,
    GradientDescent,
    SessionRunHook,
    get_variable,
)

__all__ = ["HOLD_SECS", "HoldLastEvaluation", "HoldOn", "StopOnFile", "count_updates", "endless_rows", "evals"]

HOLD_SECS = 500.0


def count_updates(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """Count the updates in a variable."""
    num_updates = get_variable("num_updates", initializer=0.0)
    train_op = GradientDescent(1.0).apply_gradients({"num_updates": np.float32(-1)})
    return EstimatorSpec(mode, loss=np.mean(labels**2) + 0 * num_updates, train_op=train_op)


def _rows() -> Dataset:
    x = np.linspace(-1, 1, 100, dtype=np.float32)
    return Dataset({"x": x}, 2 * x).batch(10)


def endless_rows() -> Dataset:
    """Return rows to train on for ever."""
    return _rows().repeat()


def evals(hooks: Sequence[SessionRunHook] = ()) -> EvalSpec:
    """Return how to evaluate each checkpoint at once."""
    return EvalSpec(_rows, None, hooks=hooks, start_delay_secs=0, throttle_secs=0)


class HoldOn(CheckpointSaverListener):
    """Stops the chief in its first checkpoint from a step on, once, until it is killed or let go by a file."""

    def __init__(self, directory: Path, step: int = 1) -> None:
        self.held, self.go, self.step = directory / f"held-{step}", directory / f"go-{step}", step

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Say that the checkpoint is under way."""
        if global_step_value >= self.step and not self.held.exists():
            self.held.touch()
            deadline = time.monotonic() + HOLD_SECS
            while not self.go.exists() and time.monotonic() < deadline:
                time.sleep(0.02)


class HoldLastEvaluation(SessionRunHook):
    """Stops the evaluator in its evaluation of a step, the first time, until somebody kills it."""

    def __init__(self, directory: Path, step: int) -> None:
        self.held, self.step = directory / "held-evaluation", step

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Say that the evaluation is under way."""
        if run_context.session.global_step == self.step and not self.held.exists():
            self.held.touch()
            threading.Event().wait(HOLD_SECS)


class StopOnFile(SessionRunHook):
    """Ends training once there is a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Look for it."""
        if run_context.session.is_chief and self.path.exists():
            run_context.request_stop()
