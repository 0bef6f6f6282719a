"""Canned models by their names: variables, defaults, keys of evaluations and predictions, warm starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import psflow
from psflow import Dataset, Estimator, RunConfig
from psflow.ps_runtime.errors import UsageError

CONFIG = RunConfig(tf_random_seed=1, save_checkpoints_steps=10_000)
X = np.float32([[1], [2], [3], [4]])
WORDS = np.array([0, 1, 2, 1])
VALUES, CLASSES, TRUTHS = np.float32([1, 2, 3, 6]), np.array([0, 1, 2, 1]), np.array([0, 1, 1, 1])

LINEAR = {"linear/linear_model/bias_weights", "linear/linear_model/word/weights", "linear/linear_model/x/weights"}
DEEP = {
    *(f"dnn/{layer}/{kind}" for layer in ("hiddenlayer_0", "hiddenlayer_1", "logits") for kind in ("bias", "kernel")),
    "dnn/input_layer/word_embedding/embedding_weights",
}
LINEAR_MODELS = ("LinearRegressor", "LinearClassifier")
DEEP_MODELS = ("DNNRegressor", "DNNClassifier")
COMBINED_MODELS = ("DNNLinearCombinedRegressor", "DNNLinearCombinedClassifier")
BASELINES = ("BaselineRegressor", "BaselineClassifier")
VARIABLES = (
    dict.fromkeys(LINEAR_MODELS, LINEAR)
    | dict.fromkeys(DEEP_MODELS, DEEP)
    | dict.fromkeys(COMBINED_MODELS, LINEAR | DEEP)
    | {name: {"baseline/bias"} for name in BASELINES}
)
"""As TensorFlow 2.15 names them, which puts ``input_from_feature_columns/`` before ``input_layer/``."""

REGRESSORS, CLASSIFIERS = ([name for name in VARIABLES if name.endswith(kind)] for kind in ("Regressor", "Classifier"))


def records(labels: Any, num_ids: int = 4) -> Dataset:
    return Dataset({"x": X, "word": WORDS}, labels, num_ids={"word": num_ids}, embedding={"word": 3}).batch(2)


def model_of(name: str, folder: Path, **arguments: Any) -> Estimator:
    if name in DEEP_MODELS:
        arguments["hidden_units"] = [4, 2]
    if name in COMBINED_MODELS:
        arguments["dnn_hidden_units"] = [4, 2]
    made: Estimator = getattr(psflow, name)(**arguments, model_dir=str(folder), config=CONFIG)
    return made


@pytest.mark.parametrize("name", VARIABLES)
def test_an_optimizer_is_an_instance_or_a_name(name: str, tmp_path: Path) -> None:
    """As in TensorFlow, with the learning rate of the class; a name without one is refused."""
    keys = ("linear_optimizer", "dnn_optimizer") if name in COMBINED_MODELS else ("optimizer",)
    model = model_of(name, tmp_path, **dict.fromkeys(keys, "Adam"))
    assert [model.params[key] for key in keys] == [psflow.Adam(0.001)] * len(keys)
    for key in keys:
        with pytest.raises(UsageError, match=rf"{name}: {key}: 'RMSProp' has no default learning rate: give RMSProp\("):
            model_of(name, tmp_path, **{key: "RMSProp"})


@pytest.mark.parametrize("name", ["LinearEstimator", "DNNEstimator", "DNNLinearCombinedEstimator", "BaselineEstimator"])
def test_an_optimizer_of_a_given_head_is_an_instance_or_a_name(name: str, tmp_path: Path) -> None:
    units = [[3]] if name.startswith("DNN") else []
    key = "dnn_optimizer" if "Combined" in name else "optimizer"
    model = getattr(psflow, name)(psflow.RegressionHead(), *units, **{key: "Adam"}, model_dir=str(tmp_path))
    assert model.params[key] == psflow.Adam(0.001)


def labels_of(name: str) -> Any:
    return VALUES if name in REGRESSORS else CLASSES


def trained(name: str, folder: Path, steps: int = 2, num_ids: int = 4, **arguments: Any) -> Estimator:
    if name in CLASSIFIERS:
        arguments.setdefault("n_classes", 3)
    model = model_of(name, folder, **arguments)
    return model.train(lambda: records(labels_of(name), num_ids).repeat(), max_steps=steps)


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_have_the_names_and_shapes_of_the_original(name: str, tmp_path: Path) -> None:
    model = trained(name, tmp_path)
    assert set(model.get_variable_names()) == VARIABLES[name] | {"global_step"}
    num_outputs = 1 if name in REGRESSORS else 3
    shapes = {
        "linear/linear_model/bias_weights": (num_outputs,),
        "linear/linear_model/x/weights": (1, num_outputs),
        "linear/linear_model/word/weights": (4, num_outputs),
        "dnn/input_layer/word_embedding/embedding_weights": (4, 3),
        "dnn/hiddenlayer_0/kernel": (1 + 3, 4),
        "dnn/hiddenlayer_1/kernel": (4, 2),
        "dnn/logits/kernel": (2, num_outputs),
        "dnn/logits/bias": (num_outputs,),
        "baseline/bias": (num_outputs,),
    }
    for variable in VARIABLES[name] & shapes.keys():
        assert model.get_variable_value(variable).shape == shapes[variable], variable
    assert model.get_variable_value("global_step") == 2


def test_weights_of_a_linear_model_begin_at_zero_and_those_of_a_deep_one_do_not(tmp_path: Path) -> None:
    still = psflow.GradientDescent(learning_rate=1e-30)
    linear = trained("LinearRegressor", tmp_path / "linear", 1, optimizer=still)
    assert all(np.abs(linear.get_variable_value(name)).max() < 1e-20 for name in LINEAR)
    deep = trained("DNNRegressor", tmp_path / "deep", 1, optimizer=still)
    for name in DEEP:
        assert (np.abs(deep.get_variable_value(name)).max() < 1e-20) == name.endswith("/bias"), name


@pytest.mark.parametrize("name", [*LINEAR_MODELS, *DEEP_MODELS, *COMBINED_MODELS])
def test_tables_of_many_ids_have_the_names_of_variables(name: str, tmp_path: Path) -> None:
    model = trained(name, tmp_path, num_ids=5000)
    assert set(model.get_variable_names()) == VARIABLES[name] | {"global_step"}
    of_ids = [variable for variable in VARIABLES[name] if "word" in variable]
    for table in of_ids:
        assert np.array_equal(model.get_variable_value(table)[WORDS], model.get_table_rows(table, WORDS))


RATES = [
    ("LinearRegressor", 1, psflow.Ftrl, 0.2),
    ("LinearRegressor", 100, psflow.Ftrl, 0.1),
    ("LinearClassifier", 1, psflow.Ftrl, 0.2),
    ("BaselineRegressor", 1, psflow.Ftrl, 0.3),
    ("BaselineClassifier", 1, psflow.Ftrl, 0.3),
    ("DNNRegressor", 1, psflow.Adagrad, 0.05),
    ("DNNClassifier", 1, psflow.Adagrad, 0.05),
]
"""Model, number of columns, optimizer and its learning rate; those of deep models are of ``tf.compat.v1.estimator``."""


@pytest.mark.parametrize(("name", "num_columns", "optimizer", "rate"), RATES)
def test_the_default_optimizer_has_the_learning_rate_of_the_original(
    name: str, num_columns: int, optimizer: Any, rate: float, tmp_path: Path
) -> None:
    features = {f"x{number:02}": X[:, 0] for number in range(num_columns)}
    labels = labels_of(name)
    biases = []
    for folder, arguments in (("default", {}), ("given", {"optimizer": optimizer(learning_rate=rate)})):
        model = model_of(name, tmp_path / folder, **arguments, **({"n_classes": 3} if name in CLASSIFIERS else {}))
        model.train(lambda: Dataset(features, labels).batch(4), max_steps=1)
        [bias] = [
            each for each in model.get_variable_names() if each.endswith(("bias_weights", "logits/bias", "e/bias"))
        ]
        biases.append(model.get_variable_value(bias))
    assert np.abs(biases[1]).max() > 0, "a step that moves nothing shows nothing"
    assert np.array_equal(*biases)


def test_the_parts_of_a_combined_model_have_the_learning_rates_of_the_original(tmp_path: Path) -> None:
    given = {
        "linear_optimizer": psflow.Ftrl(learning_rate=0.005),
        "dnn_optimizer": psflow.Adagrad(learning_rate=0.001),
    }
    biases = []
    for folder, arguments in (("default", {}), ("given", given)):
        model = model_of("DNNLinearCombinedRegressor", tmp_path / folder, **arguments)
        model.train(lambda: records(VALUES), max_steps=1)
        names = ("linear/linear_model/bias_weights", "dnn/logits/bias")
        biases.append([model.get_variable_value(name) for name in names])
    assert np.abs(biases[1]).min() > 0, "a step that moves nothing shows nothing"
    assert np.array_equal(*biases)


@pytest.mark.parametrize("name", REGRESSORS)
def test_what_a_regressor_says(name: str, tmp_path: Path) -> None:
    model = trained(name, tmp_path)
    found = model.evaluate(lambda: records(VALUES))
    assert set(found) == {"average_loss", "global_step", "label/mean", "loss", "prediction/mean"}
    assert found["label/mean"] == 3
    assert found["loss"] == pytest.approx(found["average_loss"])
    predicted = list(model.predict(lambda: records(None)))
    assert [(list(row), row["predictions"].shape) for row in predicted] == [(["predictions"], (1,))] * 4
    assert np.mean([row["predictions"] for row in predicted]) == pytest.approx(found["prediction/mean"], rel=1e-6)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_what_a_classifier_of_three_classes_says(name: str, tmp_path: Path) -> None:
    model = trained(name, tmp_path)
    found = model.evaluate(lambda: records(CLASSES))
    assert set(found) == {"accuracy", "average_loss", "global_step", "loss"}
    predicted = list(model.predict(lambda: records(None)))
    for row in predicted:
        assert {"class_ids", "logits", "probabilities"} <= row.keys()
        assert row["logits"].shape == row["probabilities"].shape == (3,)
        assert row["probabilities"] == pytest.approx(np.exp(row["logits"]) / np.exp(row["logits"]).sum(), rel=1e-5)
    right = [np.ravel(row["class_ids"])[0] == label for row, label in zip(predicted, CLASSES, strict=True)]
    assert np.mean(right) == found["accuracy"]
    assert [list(row) for row in model.predict(lambda: records(None), predict_keys=["logits"])] == [["logits"]] * 4


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_has_two_classes_where_nothing_else_is_said(name: str, tmp_path: Path) -> None:
    model = model_of(name, tmp_path).train(lambda: records(TRUTHS), steps=1)
    found = model.evaluate(lambda: records(TRUTHS))
    assert set(found) == {
        *("accuracy", "accuracy_baseline", "auc", "auc_precision_recall", "average_loss", "global_step"),
        *("label/mean", "loss", "precision", "prediction/mean", "recall"),
    }
    assert found["label/mean"] == found["accuracy_baseline"] == 0.75
    assert next(model.predict(lambda: records(None)))["probabilities"].shape == (2,)


@pytest.mark.parametrize("name", VARIABLES)
def test_a_warm_start_takes_every_variable_and_counts_from_zero(name: str, tmp_path: Path) -> None:
    parent = trained(name, tmp_path / "parent", 3)
    still = psflow.GradientDescent(learning_rate=1e-30)
    optimizers = ("linear_optimizer", "dnn_optimizer") if name in COMBINED_MODELS else ("optimizer",)
    child = trained(name, tmp_path / "child", 1, warm_start_from=parent.model_dir, **dict.fromkeys(optimizers, still))
    assert child.get_variable_value("global_step") == 1
    for variable in VARIABLES[name]:
        expected = parent.get_variable_value(variable)
        np.testing.assert_allclose(child.get_variable_value(variable), expected, atol=1e-20, err_msg=variable)


def test_a_baseline_learns_the_mean_and_the_shares_of_the_classes(tmp_path: Path) -> None:
    rate = psflow.GradientDescent(learning_rate=0.25)
    whole = Dataset({"x": X}, VALUES).batch(4).repeat()
    mean = model_of("BaselineRegressor", tmp_path / "mean", optimizer=rate).train(lambda: whole, max_steps=60)
    assert mean.get_variable_value("baseline/bias") == pytest.approx([3.0], rel=1e-4)
    classes = Dataset({"x": X}, CLASSES).batch(4).repeat()
    fast = psflow.GradientDescent(learning_rate=2.0)
    shares = model_of("BaselineClassifier", tmp_path / "shares", optimizer=fast, n_classes=3)
    shares.train(lambda: classes, max_steps=60)
    predicted = next(shares.predict(lambda: Dataset({"x": X}).batch(4)))
    assert predicted["probabilities"] == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


@pytest.mark.parametrize("name", DEEP_MODELS)
@pytest.mark.parametrize("units", [[0], [2.5], 4])
def test_hidden_units_are_whole_numbers(name: str, units: Any) -> None:
    with pytest.raises(UsageError, match="hidden_units"):
        getattr(psflow, name)(hidden_units=units, model_dir="unused")
