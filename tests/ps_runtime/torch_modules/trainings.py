"""A regression on which the tests of torch modules train."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import psflow
from psflow.torch import TorchEstimator

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = (X @ np.float32([1.0, -2.0, 0.5])).astype(np.float32)
CITIES = np.arange(40) % 5
REGRESSION = psflow.RegressionHead()
SGD = psflow.GradientDescent(0.1)


def linear(**params: Any) -> Any:
    return nn.Linear(3, 1, **params)


def of(features: Any, labels: Any = Y) -> Callable[[], Any]:
    return lambda: psflow.Dataset.from_tensor_slices((features, labels)).repeat(5).batch(8)


def trained(module: Any, input_fn: Any, model_dir: Path, *, head: Any = REGRESSION, **settings: Any) -> TorchEstimator:
    estimator = TorchEstimator(module, head, SGD, model_dir, psflow.RunConfig(tf_random_seed=1), **settings)
    estimator.train(input_fn)
    return estimator
