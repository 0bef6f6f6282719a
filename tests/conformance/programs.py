"""A small program in the style of the Estimator: a model, its inputs, and where it is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from psflow import Dataset, Estimator, EstimatorSpec, GradientDescent, ModeKeys, RunConfig, get_variable, metrics

NUM_ROWS = 12
X = np.arange(NUM_ROWS, dtype=np.float32) / NUM_ROWS
Y = 2 * X


def line(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """``y = w * x``, with a gradient manually."""
    w = get_variable("w", initializer=0.5)
    y = w * features["x"]
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": y, "twice": 2 * y})
    error = y - labels
    if mode == ModeKeys.EVAL:
        return EstimatorSpec(mode, loss=np.mean(error**2), eval_metric_ops={"mean_y": metrics.mean(y)})
    train_op = GradientDescent(0.1).apply_gradients({"w": 2 * np.mean(error * features["x"])})
    return EstimatorSpec(mode, loss=np.mean(error**2), train_op=train_op)


def rows(num_rows: int = NUM_ROWS, batch_size: int = 4) -> Dataset:
    """Return rows in order: one epoch."""
    return Dataset({"x": X[:num_rows]}, Y[:num_rows]).batch(batch_size)


def batches() -> Iterator[Any]:
    """Yield the rows as batches of four."""
    for start in range(0, NUM_ROWS, 4):
        yield {"x": X[start : start + 4]}, Y[start : start + 4]


def no_batches() -> Iterator[Any]:
    """Yield nothing."""
    yield from ()


def estimator_in(directory: Path, model_fn: Any = line, **settings: Any) -> Estimator:
    """Return an Estimator that saves nothing but the first and the last step."""
    settings = {"tf_random_seed": 1, "save_checkpoints_steps": 1000, "log_step_count_steps": None} | settings
    return Estimator(model_fn, directory, RunConfig(**settings))
