"""Rows of several ids of an example: as a variable and as a sparse table, with derivatives manually and by autograd."""

from __future__ import annotations

import autograd.numpy as anp
import numpy as np
import pytest

import psflow
from psflow import (
    Dataset,
    DNNRegressor,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    RunConfig,
    get_variable,
    initializers,
)
from psflow import feature_column as fc
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.model.canned.features import MAX_DENSE_IDS

RNG = np.random.default_rng(3)
IDS = RNG.integers(-1, 4, (24, 3))
WEIGHTS = np.where(IDS == -1, 0, RNG.normal(1, 1, IDS.shape)).astype(np.float32)
LABELS = RNG.normal(size=24).astype(np.float32)
CONFIG = RunConfig(tf_random_seed=1, save_checkpoints_steps=1000, log_step_count_steps=None)
RATE = GradientDescent(0.02)


class Losses(psflow.SessionRunHook):
    def __init__(self):
        self.values = []

    def before_run(self, run_context):
        return psflow.SessionRunArgs("loss")

    def after_run(self, run_context, run_values):
        self.values.append(run_values.results)


def examples():
    return Dataset({"ids": IDS, "one": np.abs(IDS[:, 0]), "w": WEIGHTS}, LABELS).batch(8).repeat(2)


def columns_of(num_ids, **options):
    first = {"initializer": initializers.constant(0.7)} | options
    ids, one = (fc.categorical_column_with_identity(key, num_ids) for key in ("ids", "one"))
    return [
        fc.embedding_column(fc.weighted_categorical_column(ids, "w"), 2, **first),
        *fc.shared_embeddings([ids, one], 3, **first),
    ]


def by_autograd(columns):
    def model_fn(features, labels, mode):
        inputs = fc.input_layer(features, columns)
        kernel = get_variable("dnn/logits/kernel", (inputs.shape[1], 1))
        bias = get_variable("dnn/logits/bias", (1,), initializer=initializers.zeros)
        loss = anp.mean((anp.dot(inputs, kernel) + bias - labels.reshape(-1, 1)) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=RATE.minimize(loss))

    return model_fn


def losses_of(estimator):
    hook = Losses()
    estimator.train(examples, hooks=[hook])
    return hook.values


OPTIONS = {
    "sum": {"combiner": "sum"},
    "mean": {"combiner": "mean"},
    "sqrtn": {"combiner": "sqrtn"},
    "max_norm": {"combiner": "sum", "max_norm": 1.0},
    "a max_norm that is not reached": {"combiner": "mean", "max_norm": 9.0},
    "not trainable": {"combiner": "mean", "trainable": False},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_variable_and_a_table_learn_the_same_by_hand_and_by_autograd(options, tmp_path):
    found = {}
    for num_ids in (4, MAX_DENSE_IDS + 1):
        columns = columns_of(num_ids, **options)
        by_hand = DNNRegressor([], columns, optimizer=RATE, model_dir=str(tmp_path / f"hand{num_ids}"), config=CONFIG)
        found["manually", num_ids] = losses_of(by_hand)
        found["autograd", num_ids] = losses_of(
            Estimator(by_autograd(columns), str(tmp_path / f"auto{num_ids}"), CONFIG)
        )
    expected = found["manually", 4]
    assert len(expected) == 6
    assert expected[-1] < expected[0]
    for losses in found.values():
        np.testing.assert_allclose(losses, expected, rtol=2e-5)


def test_vectors_that_are_not_trainable_have_another_course(tmp_path):
    losses = []
    for trainable in (True, False):
        columns = columns_of(4, trainable=trainable)
        estimator = DNNRegressor([], columns, optimizer=RATE, model_dir=str(tmp_path / str(trainable)), config=CONFIG)
        losses.append(losses_of(estimator))
    assert losses[0][0] == losses[1][0]
    assert losses[0][-1] != losses[1][-1]


@pytest.mark.parametrize(
    "initializer", [initializers.truncated_normal(), initializers.uniform(low=0, high=1), initializers.glorot_uniform]
)
def test_first_values_that_no_table_has_are_refused(initializer, tmp_path):
    column = fc.embedding_column(fc.categorical_column_with_hash_bucket("ids", 5000, int), 2, initializer=initializer)
    estimator = DNNRegressor([], column, model_dir=str(tmp_path), config=CONFIG)
    with pytest.raises(ModelFnError, match=r"has 5000 rows, which are a sparse table: expected an initializer that is"):
        estimator.train(examples)


def test_rows_that_no_example_has_stay_where_they_were(tmp_path):
    ids = fc.categorical_column_with_identity("ids", 6)
    column = fc.embedding_column(ids, 2, initializer=initializers.ones, max_norm=1.0)
    estimator = DNNRegressor([], column, optimizer=RATE, model_dir=str(tmp_path), config=CONFIG).train(examples)
    vectors = estimator.get_variable_value("dnn/input_layer/ids_embedding/embedding_weights")
    assert (vectors[4:] == 1).all()
    assert (vectors[:4] != 1).all()
