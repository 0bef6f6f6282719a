"""Trainings that begin with first values out of a checkpoint."""

import inspect
import logging

import numpy as np
import pytest

from psflow import (
    Adagrad,
    Dataset,
    DNNClassifier,
    DNNRegressor,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    LinearClassifier,
    LinearRegressor,
    RunConfig,
    TrainSpec,
    WarmStartSettings,
    embedding_lookup,
    get_variable,
)
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.model_dir import Fork
from psflow.ps_runtime.initializers import constant
from psflow.ps_runtime.roles.warm_checkpoint import write_warm_checkpoint
from psflow.ps_runtime.specs.variables import TableSpec
from tests.conformance.warm_checkpoints import BIAS, write


def records():
    return Dataset({"x": np.float32([[1, 0], [0, 1]]), "item": np.array([0, 2])}, np.float32([1, 2])).batch(2)


def small_model(features, labels, mode):
    """Nothing moves: its gradients are zero."""
    w = get_variable("w", (2,), initializer=constant(-1.0))
    get_variable("moving_mean", (), initializer=constant(-1.0), trainable=False)
    items = embedding_lookup("items", features["item"], 4, 1, initializer="constant", scale=9.0)
    loss = float(np.mean(features["x"] @ w) + np.mean(items))
    zeros = {"w": np.zeros(2, np.float32)}
    op = Adagrad(learning_rate=0.5, initial_accumulator_value=0.25).apply_gradients(zeros)
    return EstimatorSpec(mode, loss=loss, train_op=op)


@pytest.fixture
def small_parent(tmp_path):
    spec = TableSpec("items", 4, 1, "float32", 0, {"name": "constant", "value": 9.0}, 5)
    values = {"w": BIAS, "moving_mean": np.float32(3)}
    return write(tmp_path / "parent", values, [(spec, {2: [0.5], 3: [0.25]})])


def test_training_begins_with_the_values_and_nothing_else_of_the_checkpoint(tmp_path, small_parent, caplog):
    caplog.set_level(logging.INFO)
    estimator = Estimator(small_model, str(tmp_path / "child"), warm_start_from=small_parent)
    estimator.train(records, steps=1)
    assert estimator.get_variable_value("w").tolist() == [10, 20]
    assert estimator.get_variable_value("moving_mean") == -1
    assert estimator.get_variable_value("items").tolist() == [[9.0], [9.0], [0.5], [0.25]]
    store = CheckpointStore(estimator.model_dir)
    assert store.steps() == [0, 1]
    with CheckpointReader.pinned(store, 1, "test") as reader:
        assert reader.rows("w", "accumulator", 0, 2).tolist() == [0.25, 0.25]
    [line] = [r.getMessage() for r in caplog.records if "warm start from" in r.getMessage()]
    assert line == (
        f"warm start from {small_parent}/checkpoints/step_00000007: items, w; as their initializers say: moving_mean"
    )


def test_a_model_dir_with_a_checkpoint_is_gone_on_with(tmp_path, small_parent, caplog):
    directory = str(tmp_path / "child")
    Estimator(small_model, directory).train(records, steps=1)
    caplog.set_level(logging.INFO)
    estimator = Estimator(small_model, directory, warm_start_from=small_parent)
    estimator.train(records, steps=1)
    assert estimator.get_variable_value("w").tolist() == [-1, -1]
    [line] = [r.getMessage() for r in caplog.records if "warm-start" in r.getMessage()]
    assert line == (
        f"{directory} has a checkpoint of step 1: training continues there, and does not warm-start from {small_parent}"
    )


def test_a_warm_started_job_that_is_trained_on_is_not_started_again(tmp_path, small_parent):
    estimator = Estimator(small_model, str(tmp_path / "child"), warm_start_from=WarmStartSettings(small_parent, "w"))
    estimator.train(records, steps=1)
    estimator.train(records, steps=1)
    assert CheckpointStore(estimator.model_dir).latest() == 2
    assert estimator.get_variable_value("w").tolist() == [10, 20]


def test_a_refused_warm_start_leaves_nothing_behind(tmp_path, small_parent):
    estimator = Estimator(small_model, str(tmp_path / "child"), warm_start_from=WarmStartSettings(small_parent, "v"))
    with pytest.raises(UsageError, match="'v' matches no variable of items, w"):
        estimator.train(records, steps=1)
    assert not (tmp_path / "child").exists()


def test_a_fork_begins_with_the_checkpoint_of_its_parent(tmp_path, small_parent, caplog):
    config = RunConfig(tf_random_seed=1)
    begun = Estimator(small_model, str(tmp_path / "begun"), config).train(records, steps=1)
    caplog.set_level(logging.INFO)
    child = Estimator(small_model, str(tmp_path / "child"), config, warm_start_from=small_parent)
    fork = Fork(begun.model_dir, child.model_dir)
    assert Attempt(child, TrainSpec(records, 2), None, fork=fork).warm_start is None
    assert (
        f"is a fork, which has a checkpoint: training continues there, and does not warm-start from {small_parent}"
        in (caplog.text)
    )


@pytest.mark.parametrize("num_ps", [1, 3])
def test_the_first_checkpoint_is_of_any_number_of_ps(tmp_path, small_parent, num_ps):
    estimator = Estimator(small_model, str(tmp_path / "child"), warm_start_from=small_parent)
    with Attempt(estimator, TrainSpec(records, 1), None, num_ps=num_ps) as attempt:
        job = attempt.job()
        cold = {"w": np.float32([-1, -1]), "moving_mean": np.float32(-1)}
        assert write_warm_checkpoint(job, job.warm_start, cold, CheckpointStore(job.model_dir)) == 0
    assert len(CheckpointStore(estimator.model_dir).manifest(0).shards) == num_ps
    assert estimator.get_variable_value("w").tolist() == [10, 20]
    assert estimator.get_table_rows("items", [3, 2, 0]).tolist() == [[0.25], [0.5], [9.0]]


@pytest.mark.parametrize("given", [3, ["runs/a"], {"from": "runs/a"}])
def test_an_estimator_refuses_what_is_neither_path_nor_settings(tmp_path, given):
    with pytest.raises(UsageError, match="warm_start_from should be a path or WarmStartSettings, got"):
        Estimator(small_model, str(tmp_path), warm_start_from=given)


def numbers():
    return Dataset({"x": np.float32([[1, 0], [0, 1]])}, np.array([0, 1])).batch(2)


@pytest.mark.parametrize("kind", [DNNClassifier, DNNRegressor, LinearClassifier, LinearRegressor])
def test_canned_models_take_it(tmp_path, kind):
    arguments = {"hidden_units": [3]} if "hidden_units" in inspect.signature(kind).parameters else {}
    optimizer = GradientDescent(learning_rate=0.1)
    parent = kind(**arguments, optimizer=optimizer, model_dir=str(tmp_path / "parent")).train(numbers, steps=1)
    still = GradientDescent(learning_rate=1e-30)
    child = kind(**arguments, optimizer=still, model_dir=str(tmp_path / "child"), warm_start_from=parent.model_dir)
    child.train(numbers, steps=1)
    for name in child.get_variable_names():
        if name != "global_step":
            expected = parent.get_variable_value(name)
            np.testing.assert_allclose(child.get_variable_value(name), expected, atol=1e-20)
