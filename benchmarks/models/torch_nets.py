"""Torch modules: the network 784-100-10, and a convolutional one for 28 x 28 pixels, both with 100 images a batch.

The bare loop is a plain loop of torch: the same module, gradient descent of ``torch.optim``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F  # noqa: N812  (its usual name)

from benchmarks.models.mlp import BATCH_SIZE, LEARNING_RATE, NUM_IMAGES, arrays, input_fn
from psflow import EstimatorSpec, GradientDescent, ModeKeys, summary
from psflow.torch import TorchModule, spec

__all__ = ["BATCH_SIZE", "LEARNING_RATE", "NETWORKS", "arrays", "bare_step", "cnn", "input_fn", "mlp", "model_fn"]

CHANNELS = 16


def mlp() -> Any:
    """Return a network of two dense layers."""
    return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


def cnn() -> Any:
    """Return a network of two convolutions with batch normalization, and two dense layers."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(CHANNELS, 2 * CHANNELS, 3, padding=1), nn.BatchNorm2d(2 * CHANNELS), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(2 * CHANNELS * 49, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


NETWORKS: Mapping[str, Callable[[], Any]] = {"mlp": mlp, "cnn": cnn}
_MODULES = {name: TorchModule(build) for name, build in NETWORKS.items()}


def model_fn(
    features: NDArray[Any], labels: NDArray[Any], mode: ModeKeys, params: Mapping[str, Any], config: Any
) -> EstimatorSpec:
    """Return loss and gradients of a batch."""
    net = _MODULES[params["network"]].bound(mode, config)
    logits = net(torch.from_numpy(features))
    if mode == ModeKeys.PREDICT:
        return spec(mode, net, predictions=logits)
    loss = F.cross_entropy(logits, torch.from_numpy(labels))
    if mode == ModeKeys.TRAIN:
        summary.scalar("clock", time.monotonic())
    return spec(mode, net, loss=loss, optimizer=GradientDescent(LEARNING_RATE))


def bare_step(params: Mapping[str, Any]) -> Callable[[], object]:
    """Return a function that makes one step of a plain loop of torch."""
    torch.set_num_threads(1)
    torch.manual_seed(2)
    module = NETWORKS[params["network"]]()
    optimizer = torch.optim.SGD(module.parameters(), LEARNING_RATE)
    data = arrays(params)
    images, labels = torch.from_numpy(data["features"]), torch.from_numpy(data["labels"])
    start = 0

    def step() -> object:
        nonlocal start
        batch = slice(start, start + BATCH_SIZE)
        start = (start + BATCH_SIZE) % NUM_IMAGES
        optimizer.zero_grad()
        F.cross_entropy(module(images[batch]), labels[batch]).backward()
        return optimizer.step()

    return step
