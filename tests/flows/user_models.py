"""A module as a user would write it: model_fn and input_fns."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import autograd.numpy as anp
import numpy as np

from psflow import Dataset, EstimatorSpec, GradientDescent, ModeKeys, get_variable


def line(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
    """``y = w * x + b``."""
    w = get_variable("w")
    b = get_variable("b")
    y = w * features["x"] + b
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": y})
    loss = anp.mean((y - labels) ** 2)
    train_op = GradientDescent(learning_rate=params["learning_rate"]).minimize(loss) if mode == ModeKeys.TRAIN else None
    return EstimatorSpec(mode, loss=loss, train_op=train_op)


def other_line(features: Any, labels: Any, mode: str, params: Any) -> EstimatorSpec:
    """``y = slope * x``."""
    return EstimatorSpec(mode, loss=anp.mean((get_variable("slope") * features["x"] - labels) ** 2))


def returns_a_number(features: Any, labels: Any, mode: str, params: Any) -> float:
    """Is no model_fn."""
    return 1.0


def points(params: Any) -> Iterator[Any]:
    """Yield batches of points on a line, with ``holes`` one in each that is none; log ``secrets`` if it has some."""
    if "secrets" in params:
        logging.getLogger("my_models").warning("reading %s", params)
    random = np.random.default_rng(0)
    holes = np.full(1 if params.get("holes") else 0, np.nan, np.float32)
    for _ in range(params["num_batches"]):
        x = np.concatenate([random.random(8, dtype=np.float32), holes])
        yield {"x": x}, 2 * x + 1


def held_out() -> Any:
    """Return two points of that line, and one that is none."""
    return {"x": np.float32([0, np.nan, 1])}, np.float32([1, 2, 3])


def numbered() -> Any:
    """Return points on that line as six batches, of which the last is smaller: a data set by number."""
    return Dataset.range(11).map(lambda n: ({"x": np.float32(n)}, 2 * np.float32(n) + 1)).batch(2)


def nothing() -> Iterator[Any]:
    """Yield no batch at all."""
    return iter(())
