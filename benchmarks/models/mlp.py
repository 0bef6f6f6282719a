"""The network 784-100-10 on random images: relu, softmax cross entropy, gradient descent, 100 images a batch.

The gradient is computed manually, as in a fast user program; the bare loop computes the same gradient.
"""

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
from psflow.ps_runtime.layers import dense, dense_backward, dense_input_gradient, relu, relu_backward
from psflow.ps_runtime.losses import softmax_cross_entropy
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

__all__ = ["MODEL", "NUM_PIXELS", "arrays", "bare_step", "hidden_and_logits", "input_fn", "model_fn"]

NUM_PIXELS, NUM_HIDDEN, NUM_CLASSES = 784, 100, 10
NUM_IMAGES = 6000
BATCH_SIZE = 100
LEARNING_RATE = 0.01
SHAPES = {
    "hidden/kernel": (NUM_PIXELS, NUM_HIDDEN),
    "hidden/bias": (NUM_HIDDEN,),
    "logits/kernel": (NUM_HIDDEN, NUM_CLASSES),
    "logits/bias": (NUM_CLASSES,),
}

MODEL = ModelSpec(
    tuple(VariableSpec(name, shape, "float32", optimizer=0) for name, shape in SHAPES.items()),
    (GradientDescent(learning_rate=LEARNING_RATE).config(),),
)
"""What psflow finds in the first call of `model_fn`."""

Variables = Mapping[str, NDArray[Any]]


def arrays(params: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return `features` (6000, 784) in [0, 1) and `labels` (6000,), the same ones each time."""
    rng = np.random.default_rng(1)
    return {
        "features": rng.random((NUM_IMAGES, NUM_PIXELS), np.float32),
        "labels": rng.integers(0, NUM_CLASSES, NUM_IMAGES),
    }


def input_fn(params: Mapping[str, Any]) -> Dataset:
    """Read the images forever."""
    data = arrays(params)
    return Dataset(data["features"], data["labels"]).batch(BATCH_SIZE).repeat()


def model_fn(features: NDArray[Any], labels: NDArray[Any], mode: ModeKeys) -> EstimatorSpec:
    """Return loss and hand-written gradients of a batch."""
    variables = {name: _variable(name) for name in SHAPES}
    if mode == ModeKeys.PREDICT:
        logits = hidden_and_logits(variables, features)[1]
        return EstimatorSpec(mode, predictions={"class_ids": logits.argmax(axis=1), "logits": logits})
    buffer = gradient_buffer("hidden/kernel") if mode == ModeKeys.TRAIN else None
    loss, gradients = loss_and_gradients(variables, features, labels, buffer)
    if mode != ModeKeys.TRAIN:
        return EstimatorSpec(mode, loss=loss)
    summary.scalar("clock", time.monotonic())
    optimizer = GradientDescent(learning_rate=LEARNING_RATE)
    return EstimatorSpec(mode, loss=loss, train_op=optimizer.apply_gradients(gradients))


def hidden_and_logits(variables: Variables, images: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the hidden layer and the logits of a batch."""
    hidden = relu(dense(images, variables["hidden/kernel"], variables["hidden/bias"]))
    return hidden, dense(hidden, variables["logits/kernel"], variables["logits/bias"])


def loss_and_gradients(
    variables: Variables, images: NDArray[Any], labels: NDArray[Any], buffer: NDArray[Any] | None = None
) -> tuple[float, dict[str, NDArray[Any]]]:
    """Return the loss of a batch and the gradient of each variable, that of the first kernel in `buffer`."""
    hidden, logits = hidden_and_logits(variables, images)
    loss, gradient = softmax_cross_entropy(labels, logits)
    gradients = dict(zip(("logits/kernel", "logits/bias"), dense_backward(hidden, gradient), strict=True))
    gradient = relu_backward(hidden, dense_input_gradient(variables["logits/kernel"], gradient))
    gradients |= zip(("hidden/kernel", "hidden/bias"), dense_backward(images, gradient, buffer), strict=True)
    return loss, gradients


def bare_step(params: Mapping[str, Any]) -> Callable[[], object]:
    """Return a function that computes one gradient, of one batch after the other."""
    rng = np.random.default_rng(2)
    variables = {name: _initializer(name)(shape, np.dtype(np.float32), rng) for name, shape in SHAPES.items()}
    data = arrays(params)
    start = 0

    def step() -> object:
        nonlocal start
        batch = slice(start, start + BATCH_SIZE)
        start = (start + BATCH_SIZE) % NUM_IMAGES
        return loss_and_gradients(variables, data["features"][batch], data["labels"][batch])

    return step


def _variable(name: str) -> NDArray[Any]:
    value: NDArray[Any] = get_variable(name, SHAPES[name], initializer=_initializer(name))
    return value


def _initializer(name: str) -> Any:
    return initializers.zeros if name.endswith("bias") else initializers.glorot_uniform
