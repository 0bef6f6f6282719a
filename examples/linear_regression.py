"""``y = w * x + b``, the smallest Estimator: a model_fn, and an input_fn that is a generator.

Run as ``python examples/linear_regression.py``: it trains, evaluates and predicts in one process, in seconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import autograd.numpy as np

from psflow import Estimator, EstimatorSpec, GradientDescent, ModeKeys, RunConfig, get_variable, metrics

BATCH_SIZE = 8


def model_fn(features: Any, labels: Any, mode: ModeKeys, params: dict[str, Any]) -> EstimatorSpec:
    """Compute the predictions of a batch and, with labels, its loss and gradients."""
    w = get_variable("w")
    b = get_variable("b")
    y = w * features["x"] + b
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": y})

    loss = np.mean((y - labels) ** 2)
    if mode == ModeKeys.EVAL:
        return EstimatorSpec(mode, loss=loss, eval_metric_ops={"mae": metrics.mean_absolute_error(labels, y)})

    optimizer = GradientDescent(learning_rate=params["learning_rate"])
    return EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))


def points(seed: int, num_batches: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield batches of points near the line ``y = 2 * x - 1``."""
    random = np.random.default_rng(seed)
    for _ in range(num_batches):
        x = random.uniform(-1, 1, BATCH_SIZE).astype(np.float32)
        noise = random.normal(0, 0.01, BATCH_SIZE).astype(np.float32)
        yield {"x": x}, 2 * x - 1 + noise


def train_input_fn() -> Iterator[Any]:
    """Read the training data: more than the training needs."""
    return points(seed=1, num_batches=500)


def eval_input_fn() -> Iterator[Any]:
    """Read the evaluation data."""
    return points(seed=2, num_batches=10)


def predict_input_fn() -> Iterator[Any]:
    """Read one batch without labels."""
    yield {"x": np.array([-1.0, 0.0, 1.0], np.float32)}, None


def main() -> None:
    """Train, evaluate, predict."""
    with tempfile.TemporaryDirectory() as model_dir:
        config = RunConfig(tf_random_seed=7, save_checkpoints_steps=100)
        estimator = Estimator(model_fn, model_dir, config, params={"learning_rate": 0.1})
        estimator.train(train_input_fn, max_steps=300)
        evaluated = estimator.evaluate(eval_input_fn)
        print(f"step {evaluated['global_step']}: loss {evaluated['loss']:.6f}, mae {evaluated['mae']:.4f}")
        print(f"w = {estimator.get_variable_value('w'):.3f}, b = {estimator.get_variable_value('b'):.3f}")
        for prediction in estimator.predict(predict_input_fn):
            print(f"predicted y = {prediction['y']:.3f}")


if __name__ == "__main__":
    main()
