"""100,000 parameters in many variables, or records of many columns: mostly the cost of names.

A gradient is a weight decay, as in `benchmarks.models.dense`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.models.dense import DECAY, LEARNING_RATE
from psflow import (
    Dataset,
    EstimatorSpec,
    GradientDescent,
    ModeKeys,
    get_variable,
    gradient_buffer,
    initializers,
    summary,
)

__all__ = ["arrays", "bare_step", "input_fn", "model_fn"]

NUM_PARAMETERS = 100_000
BATCH_SIZE = 100
NUM_RECORDS = 1000


def arrays(params: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return each column of the records."""
    return {f"x{i}": np.zeros(NUM_RECORDS, np.float32) for i in range(params["num_columns"])}


def input_fn(params: Mapping[str, Any]) -> Dataset:
    """Read a dict of columns, forever."""
    return Dataset(arrays(params)).batch(BATCH_SIZE).repeat()


def model_fn(features: Mapping[str, NDArray[Any]], mode: ModeKeys, params: Mapping[str, Any]) -> EstimatorSpec:
    """Return a gradient of each variable, and the sum of a batch of the last column as the loss."""
    number = params["num_variables"]
    shape = (NUM_PARAMETERS // number,)
    variables = {f"w{i}": get_variable(f"w{i}", shape, initializer=initializers.ones) for i in range(number)}
    loss = features[f"x{params['num_columns'] - 1}"].sum()
    if mode != ModeKeys.TRAIN:
        return EstimatorSpec(mode, loss=loss)
    summary.scalar("clock", time.monotonic())
    gradients = {name: np.multiply(value, DECAY, out=gradient_buffer(name)) for name, value in variables.items()}
    train_op = GradientDescent(learning_rate=LEARNING_RATE).apply_gradients(gradients)
    return EstimatorSpec(mode, loss=loss, train_op=train_op)


def bare_step(params: Mapping[str, Any]) -> Callable[[], object]:
    """Return a function that takes a batch of each column, and copies each variable down and up."""
    columns = list(arrays(params).values())
    shape = (params["num_variables"], NUM_PARAMETERS // params["num_variables"])
    shard, replica, inbox = (list(np.ones(shape, np.float32)) for _ in range(3))
    start = 0

    def step() -> object:
        nonlocal start
        batch = [column[start : start + BATCH_SIZE] for column in columns]
        start = (start + BATCH_SIZE) % NUM_RECORDS
        for ours, pulled, pushed in zip(shard, replica, inbox, strict=True):
            np.copyto(pulled, ours)
            np.copyto(pushed, pulled)
        return batch

    return step
