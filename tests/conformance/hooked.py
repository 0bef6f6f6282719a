"""A program with hooks: its w begins at 1 and falls by 0.5 a step; three batches are an epoch."""

from __future__ import annotations

import numpy as np

import psflow
from psflow import metrics, summary


def examples():
    return psflow.Dataset({"x": np.arange(6, dtype=np.float32)}, np.zeros(6, np.float32)).batch(2)


def model_fn(features, labels, mode):
    w = psflow.get_variable("w", (), initializer=lambda shape, dtype, rng: np.ones(shape, dtype))
    predicted = w * features["x"]
    if mode == psflow.ModeKeys.PREDICT:
        return psflow.EstimatorSpec(mode, predictions={"y": predicted})
    summary.scalar("largest", features["x"].max())
    return psflow.EstimatorSpec(
        mode,
        predictions={"y": predicted},
        loss=np.mean(predicted),
        train_op=psflow.GradientDescent(learning_rate=0.5).apply_gradients({"w": np.float32(1)}),
        eval_metric_ops={"mean": metrics.mean(predicted)},
    )


CONFIG = psflow.RunConfig(tf_random_seed=1, save_checkpoints_steps=100)


class Fetching(psflow.SessionRunHook):
    """Keeps what it fetches of each run, and of the end."""

    def __init__(self, fetches, at_end=None):
        self.fetches, self.at_end = fetches, at_end
        self.results, self.last = [], None

    def before_run(self, run_context):
        return psflow.SessionRunArgs(self.fetches)

    def after_run(self, run_context, run_values):
        self.results.append(run_values.results)

    def end(self, session):
        self.last = session.run(self.at_end)


def run(estimator, what, hooks):
    return (
        list(getattr(estimator, what)(examples, hooks=hooks))
        if what == "predict"
        else getattr(estimator, what)(examples, hooks=hooks)
    )
