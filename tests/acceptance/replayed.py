"""A model whose evaluation takes more than half a second of CPU, and inputs for it: as a user would write them."""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp
import numpy as np

from psflow import Dataset, EstimatorSpec, GradientDescent, ModeKeys, get_variable, metrics

WIDTH = 128


def deep(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
    """Apply one layer many times, and sum up."""
    w = get_variable("w", (WIDTH, WIDTH))
    b = get_variable("b", (WIDTH,))
    x = features["x"]
    for _ in range(params["depth"]):
        x = anp.tanh(anp.dot(x, w) + b)
    y = anp.mean(x, axis=1)
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": y})
    loss = anp.mean((y - labels) ** 2)
    if mode == ModeKeys.EVAL:
        return EstimatorSpec(mode, loss=loss, eval_metric_ops={"mae": metrics.mean_absolute_error(labels, y)})
    return EstimatorSpec(mode, loss=loss, train_op=GradientDescent(learning_rate=0.05).minimize(loss))


def examples(params: Any) -> Dataset:
    """Return as many examples as `params` say."""
    x = np.random.default_rng(params["seed"]).normal(size=(params["num_rows"], WIDTH)).astype(np.float32)
    return Dataset({"x": x}, np.tanh(x.mean(axis=1))).batch(params["batch_size"])
