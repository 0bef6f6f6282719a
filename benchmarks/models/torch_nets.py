"""Torch modules: the network 784-100-10, a convolutional one for 28 x 28 pixels, and a table of 10,000,000 x 16.

The bare loop is a plain loop of torch: the same module, gradient descent of ``torch.optim``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F  # noqa: N812  (its usual name)

from benchmarks.models import mlp as images
from benchmarks.models.embedding import BATCH_SIZE, DIM, NUM_BATCHES, NUM_IDS, zipf_ids
from psflow import Dataset, EstimatorSpec, GradientDescent, ModeKeys, summary
from psflow.torch import TorchModule, spec

__all__ = ["LEARNING_RATE", "NETWORKS", "Network", "arrays", "bare_step", "batches", "input_fn", "model_fn"]

CHANNELS = 16
NUM_ROWS = 10_000_000
LEARNING_RATE = images.LEARNING_RATE


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


def embedding() -> Any:
    """Return a sparse table whose summed rows go through a dense layer."""
    return nn.Sequential(
        nn.EmbeddingBag(NUM_ROWS, DIM, mode="sum", sparse=True), nn.Linear(DIM, 1), nn.Flatten(start_dim=0)
    )


def clicks(params: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return `features`, (records, 26) ids by the Zipf law, and `labels`, (records,) of 0 and 1."""
    rng = np.random.default_rng(3)
    ids = zipf_ids(rng, (NUM_BATCHES * BATCH_SIZE, NUM_IDS), NUM_ROWS)
    return {"features": ids, "labels": rng.integers(0, 2, len(ids)).astype(np.float32)}


@dataclass(frozen=True, slots=True)
class Network:
    """A module, its loss, and its records."""

    build: Callable[[], Any]
    loss: Callable[..., Any]
    arrays: Callable[[Mapping[str, Any]], dict[str, NDArray[Any]]]
    batch_size: int


NETWORKS: Mapping[str, Network] = {
    "mlp": Network(mlp, F.cross_entropy, images.arrays, images.BATCH_SIZE),
    "cnn": Network(cnn, F.cross_entropy, images.arrays, images.BATCH_SIZE),
    "embedding": Network(embedding, F.binary_cross_entropy_with_logits, clicks, BATCH_SIZE),
}
_MODULES = {name: TorchModule(network.build) for name, network in NETWORKS.items()}


def arrays(params: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return `features` and `labels` of the network that `params` name."""
    return NETWORKS[params["network"]].arrays(params)


def input_fn(params: Mapping[str, Any]) -> Dataset:
    """Read the records forever."""
    data = arrays(params)
    return Dataset(data["features"], data["labels"]).batch(NETWORKS[params["network"]].batch_size).repeat()


def model_fn(
    features: NDArray[Any], labels: NDArray[Any], mode: ModeKeys, params: Mapping[str, Any], config: Any
) -> EstimatorSpec:
    """Return loss and gradients of a batch."""
    net = _MODULES[params["network"]].bound(mode, config)
    outputs = net(torch.from_numpy(features))
    if mode == ModeKeys.PREDICT:
        return spec(mode, net, predictions=outputs)
    loss = NETWORKS[params["network"]].loss(outputs, torch.from_numpy(labels))
    if mode == ModeKeys.TRAIN:
        summary.scalar("clock", time.monotonic())
    return spec(mode, net, loss=loss, optimizer=GradientDescent(LEARNING_RATE))


def batches(network: str, part: slice) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the batches of a part of the records, again and again."""
    data = arrays({"network": network})
    features, labels = (torch.from_numpy(data[name])[part] for name in ("features", "labels"))
    size = NETWORKS[network].batch_size
    while True:
        yield from zip(features.split(size), labels.split(size), strict=True)


def bare_step(params: Mapping[str, Any]) -> Callable[[], object]:
    """Return a function that makes one step of a plain loop of torch."""
    torch.set_num_threads(1)
    torch.manual_seed(2)
    network = NETWORKS[params["network"]]
    module = network.build()
    optimizer = torch.optim.SGD(module.parameters(), LEARNING_RATE)
    source = batches(params["network"], slice(None))

    def step() -> object:
        features, labels = next(source)
        optimizer.zero_grad()
        network.loss(module(features), labels).backward()
        return optimizer.step()

    return step
