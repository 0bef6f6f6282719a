"""Canned models against TensorFlow 2.15.1, step by step: the same first values, the same batches."""

import json

import numpy as np
import pytest

import psflow
from psflow import (
    Dataset,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    MultiLabelHead,
    RunConfig,
    WarmStartSettings,
    get_variable,
)
from psflow.ps_runtime.losses import Reduction
from tests.parity.canned import BATCH, CASES, EMBEDDING, LOSSES_FILE, NUM_WORDS, batches, initial

TENSORFLOW = json.loads(LOSSES_FILE.read_text())
CONFIG = RunConfig(tf_random_seed=1, save_checkpoints_steps=10_000)


def records(case):
    """Return all batches as one data set, in their order."""
    given = list(batches(case))
    features = {name: np.concatenate([each[name] for each, _ in given]) for name in given[0][0]}
    labels = np.concatenate([labels for _, labels in given])
    return Dataset(features, labels, num_ids={"word": NUM_WORDS}, embedding={"word": EMBEDDING}).batch(BATCH)


def first_values(case, directory):
    """Return a warm start from a checkpoint with the values that TensorFlow began with."""

    def model_fn(features, labels, mode):
        made = {
            name.replace("input_from_feature_columns/", ""): initial(name, tuple(shape))
            for name, shape in TENSORFLOW[case]["variables"].items()
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


def estimator_of(case, directory):
    given = CASES[case] | {"loss_reduction": Reduction[CASES[case].get("loss_reduction", "SUM_OVER_BATCH_SIZE")]}
    if "head" in given:
        of_head = CASES[case]["head"]
        reduction = Reduction[of_head.get("loss_reduction", "SUM_OVER_BATCH_SIZE")]
        given = CASES[case] | {"head": MultiLabelHead(**of_head | {"loss_reduction": reduction})}
    return getattr(psflow, case.partition(" ")[0])(
        **given,
        model_dir=str(directory / "model"),
        config=CONFIG,
        warm_start_from=first_values(case, directory / "first"),
    )


@pytest.mark.parametrize("case", CASES)
def test_losses_are_those_of_tensorflow(case, tmp_path):
    losses = Losses()
    estimator_of(case, tmp_path).train(lambda: records(case), hooks=[losses])
    assert len(losses.values) == len(TENSORFLOW[case]["losses"]) == 200
    np.testing.assert_allclose(losses.values[:20], TENSORFLOW[case]["losses"][:20], rtol=1e-5)
    np.testing.assert_allclose(losses.values, TENSORFLOW[case]["losses"], rtol=1e-3)
