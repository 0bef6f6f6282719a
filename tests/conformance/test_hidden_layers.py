"""Hidden layers of deep canned models: activation functions and dropout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest

import psflow as tf
from psflow import Dataset, GradientDescent, RunConfig
from psflow.ps_runtime.model.calls.scope import BuildScope, CallScope
from psflow.ps_runtime.model.canned.dnn import HiddenUnits
from psflow.ps_runtime.model.spec import ModeKeys

X = np.random.default_rng(5).normal(size=(24, 3)).astype(np.float32)
MODELS: dict[str, Any] = {
    "DNNRegressor": lambda **given: tf.DNNRegressor([6], **given),
    "DNNEstimator": lambda **given: tf.DNNEstimator(tf.RegressionHead(), [6], **given),
    "DNNLinearCombinedRegressor": lambda **given: tf.DNNLinearCombinedRegressor(
        [6], **{f"dnn_{key}" if key in ("activation_fn", "dropout") else key: value for key, value in given.items()}
    ),
}


def config(seed: int = 1, **given: Any) -> RunConfig:
    return RunConfig(tf_random_seed=seed, **{"save_checkpoints_steps": 1000, "log_step_count_steps": None, **given})


def rows() -> Dataset:
    return Dataset(X, X[:, 0] * X[:, 1]).batch(8)


def swish(x: Any) -> Any:
    return x / (1 + anp.exp(-x))


class Losses(tf.SessionRunHook):
    def __init__(self) -> None:
        self.values: list[float] = []

    def before_run(self, run_context: Any) -> Any:
        return tf.SessionRunArgs("loss")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.values.append(run_values.results)


def losses_of(model: str, folder: Path, steps: int = 6, **given: Any) -> list[float]:
    found = Losses()
    estimator = MODELS[model](model_dir=str(folder), **{"config": config(), **given})
    estimator.train(lambda: rows().repeat(), max_steps=steps, hooks=[found])
    return found.values


@pytest.mark.parametrize("model", MODELS)
def test_an_activation_function_is_a_name_or_a_function(model: str, tmp_path: Path) -> None:
    functions: list[Any] = ["relu", "tanh", np.tanh, anp.tanh, swish, None]
    relu, by_name, of_numpy, of_autograd, own, linear = (
        losses_of(model, tmp_path / str(index), activation_fn=each) for index, each in enumerate(functions)
    )
    assert relu == losses_of(model, tmp_path / "default")
    np.testing.assert_allclose(by_name, of_numpy, rtol=1e-5)
    np.testing.assert_allclose(of_numpy, of_autograd, rtol=1e-6)
    assert len({losses[-1] for losses in (relu, by_name, own, linear)}) == 4


@pytest.mark.parametrize("model", MODELS)
def test_dropout_is_for_training_alone(model: str, tmp_path: Path) -> None:
    given = {"dropout": 0.5, "model_dir": str(tmp_path), "config": config()}
    estimator = MODELS[model](**given).train(rows)
    without = MODELS[model](**{**given, "dropout": None})
    assert estimator.evaluate(rows) == without.evaluate(rows)
    predicted = [[row["predictions"].tolist() for row in each.predict(lambda: X)] for each in (estimator, without)]
    assert predicted[0] == predicted[1]


def test_what_is_dropped_depends_on_the_seed_and_the_step(tmp_path: Path) -> None:
    still = {"optimizer": GradientDescent(1e-30), "dropout": 0.5}
    one, same, other = (
        losses_of("DNNRegressor", tmp_path / name, **still, config=config(seed))
        for name, seed in (("one", 1), ("same", 1), ("other", 2))
    )
    assert one == same != other
    assert one[0] != one[3], "the same batch with the same weights"
    assert losses_of("DNNRegressor", tmp_path / "none", **{**still, "dropout": 0})[:3] != one[:3]


def test_a_job_that_resumes_drops_what_it_would_have_dropped(tmp_path: Path) -> None:
    def weights(folder: str, *steps: int) -> Any:
        given = {"dropout": 0.4, "model_dir": str(tmp_path / folder), "config": config()}
        for max_steps in steps:
            tf.DNNRegressor([6], **given).train(lambda: rows().repeat(), max_steps=max_steps)
        return tf.DNNRegressor([6], **given).get_variable_value("dnn/hiddenlayer_0/kernel")

    assert (weights("at once", 7) == weights("resumed", 3, 7)).all()


class Replica:
    """What is asked of the RunConfig of a replica."""

    def __init__(self, number: int) -> None:
        self.global_id_in_cluster = number


def dropped(step: int, replica: int, layer: str = "a", rate: float = 0.3) -> Any:
    hidden = HiddenUnits.of("linear", rate, ModeKeys.TRAIN, Replica(replica))
    with CallScope(step, {}, {}, seed=7):
        outputs, backward = hidden(layer, np.ones((200, 50), np.float32))
    assert outputs.dtype == np.float32
    assert (backward(np.ones_like(outputs)) == outputs).all(), "a gradient goes where its output went"
    return outputs


def test_the_mean_stays_and_the_share_is_that_of_the_rate() -> None:
    outputs = dropped(3, 0)
    assert set(np.unique(outputs)) == {np.float32(0), np.float32(1) / np.float32(0.7)}
    assert (outputs == 0).mean() == pytest.approx(0.3, abs=0.02)
    assert outputs.mean() == pytest.approx(1, abs=0.03)


def test_steps_layers_and_replicas_drop_apart() -> None:
    first = dropped(3, 0)
    assert (first == dropped(3, 0)).all()
    for other in (dropped(4, 0), dropped(3, 1), dropped(3, 0, "b")):
        assert ((first == 0) & (other == 0)).mean() == pytest.approx(0.09, abs=0.02)


def test_nothing_is_drawn_where_nothing_is_dropped() -> None:
    for dropout, mode in ((None, ModeKeys.TRAIN), (0.0, ModeKeys.TRAIN), (0.9, ModeKeys.EVAL), (0.9, ModeKeys.PREDICT)):
        with BuildScope(0, 1):
            outputs, _ = HiddenUnits.of("linear", dropout, mode, None)("a", np.ones((20, 5)))
        assert (outputs == 1).all()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"activation_fn": "rleu"}, "activation_fn is 'rleu'.*did you mean 'relu'"),
    ({"activation_fn": lambda x: np.where(x > 0, x, 0 * x)}, "activation_fn: .* cannot be differentiated"),
    ({"dropout": 1.0}, "dropout is 1.0, expected a number from 0 to below 1"),
    ({"dropout": -0.5}, "dropout is -0.5"),
    ({"dropout": "a"}, "dropout is 'a'"),
    ({"dropout": True}, "dropout is True"),
    ({"dropout": float("nan")}, "dropout is nan"),
]


@pytest.mark.filterwarnings("ignore:Output seems independent of input")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("given", "words"), WRONG)
def test_what_cannot_be_is_refused(model: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MODELS[model](**given)


@pytest.mark.parametrize("model", MODELS)
def test_batch_norm_is_not_there(model: str) -> None:
    with pytest.raises(TypeError, match="batch_norm"):
        MODELS[model](batch_norm=True)
