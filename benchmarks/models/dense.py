"""One vector of N float32 whose gradient costs one pass over it: mostly the transfer of bytes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

BATCH_SIZE = 1
DECAY = np.float32(0.01)
LEARNING_RATE = 0.01


def arrays(params: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return `features` and `labels` that say nothing."""
    return {"features": np.zeros((100, 1), np.float32), "labels": np.zeros(100, np.float32)}


def input_fn(params: Mapping[str, Any]) -> Dataset:
    """Read a record a step, forever."""
    return Dataset(arrays(params)["features"]).batch(BATCH_SIZE).repeat()


def model_fn(features: NDArray[Any], mode: ModeKeys, params: Mapping[str, Any]) -> EstimatorSpec:
    """Return the gradient of a weight decay, ``0.01 * w``, made where it is pushed from, and ``w[0]`` as the loss."""
    size = int(params["num_parameters"])
    w = get_variable("w", (size,), initializer=initializers.ones)
    if mode != ModeKeys.TRAIN:
        return EstimatorSpec(mode, loss=w[0])
    summary.scalar("clock", time.monotonic())
    gradient = np.multiply(w, DECAY, out=gradient_buffer("w"))
    optimizer = GradientDescent(learning_rate=LEARNING_RATE)
    return EstimatorSpec(mode, loss=w[0], train_op=optimizer.apply_gradients({"w": gradient}))


def bare_step(params: Mapping[str, Any]) -> Callable[[], object]:
    """Return a function that copies the bytes of a pull and those of a push, all of it in touched memory."""
    shard, replica, inbox = (np.ones(int(params["num_parameters"]), np.float32) for _ in range(3))

    def step() -> object:
        np.copyto(replica, shard)
        np.copyto(inbox, replica)
        return inbox

    return step
