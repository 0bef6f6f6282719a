"""Canned models against TensorFlow 2.15.1, step by step: the same first values, the same batches."""

import json

import numpy as np
import pytest

import psflow
from psflow import Dataset, Estimator, EstimatorSpec, GradientDescent, RunConfig, WarmStartSettings, get_variable
from tests.parity.canned import BATCH, CASES, EMBEDDING, LOSSES_FILE, NUM_WORDS, batches, initial

TENSORFLOW = json.loads(LOSSES_FILE.read_text())
CONFIG = RunConfig(tf_random_seed=1, save_checkpoints_steps=10_000)


def records(model):
    """Return all batches as one data set, in their order."""
    given = list(batches(model))
    features = {name: np.concatenate([each[name] for each, _ in given]) for name in ("x", "word")}
    labels = np.concatenate([labels for _, labels in given])
    return Dataset(features, labels, num_ids={"word": NUM_WORDS}, embedding={"word": EMBEDDING}).batch(BATCH)


def first_values(model, directory):
    """Return a warm start from a checkpoint with the values that TensorFlow began with."""

    def model_fn(features, labels, mode):
        made = {
            name.replace("input_from_feature_columns/", ""): initial(name, tuple(shape))
            for name, shape in TENSORFLOW[model]["variables"].items()
        }
        values = {name: get_variable(name, initializer=value) for name, value in made.items()}
        still = {name: np.zeros_like(value) for name, value in values.items()}
        return EstimatorSpec(mode, loss=0.0, train_op=GradientDescent(0.1).apply_gradients(still))

    Estimator(model_fn, str(directory), CONFIG).train(lambda: Dataset(np.zeros((1, 1), np.float32)), steps=1)
    return WarmStartSettings(str(directory), vars_to_warm_start=[".*"])


class Losses(psflow.SessionRunHook):
    def __init__(self):
        self.values = []

    def before_run(self, run_context):
        return psflow.SessionRunArgs("loss")

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)


@pytest.mark.parametrize("model", CASES)
def test_losses_are_those_of_tensorflow(model, tmp_path):
    estimator = getattr(psflow, model)(
        **CASES[model],
        model_dir=str(tmp_path / "model"),
        config=CONFIG,
        warm_start_from=first_values(model, tmp_path / "first"),
    )
    losses = Losses()
    estimator.train(lambda: records(model), hooks=[losses])
    assert len(losses.values) == len(TENSORFLOW[model]["losses"]) == 200
    np.testing.assert_allclose(losses.values[:20], TENSORFLOW[model]["losses"][:20], rtol=1e-5)
    np.testing.assert_allclose(losses.values, TENSORFLOW[model]["losses"], rtol=1e-3)
