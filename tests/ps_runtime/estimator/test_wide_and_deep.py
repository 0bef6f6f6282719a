"""DNNLinearCombinedClassifier and -Regressor: a linear and a deep part, each with its features and its optimizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import (
    Adam,
    Dataset,
    DNNLinearCombinedClassifier,
    DNNLinearCombinedRegressor,
    Estimator,
    Ftrl,
    GradientDescent,
    RunConfig,
)
from psflow.ps_runtime.errors import InputError, UsageError

RNG = np.random.default_rng(4)
WORDS = RNG.integers(0, 40, 400)
X = RNG.normal(size=(400, 2)).astype(np.float32)
EFFECTS = RNG.normal(size=40)
VALUES = (EFFECTS[WORDS] + np.abs(X).sum(axis=1)).astype(np.float32)
CONFIG = RunConfig(tf_random_seed=3, save_checkpoints_steps=10_000)
PARTS = {"linear_feature_columns": ["word"], "dnn_feature_columns": ["x"]}
FAST = {"linear_optimizer": Ftrl(learning_rate=1.0), "dnn_optimizer": Adam(learning_rate=0.02)}


def records(labels: Any = VALUES, num_ids: int = 40) -> Callable[[], Dataset]:
    return lambda: Dataset({"word": WORDS * (num_ids // 40), "x": X}, labels, num_ids={"word": num_ids}).batch(40)


def repeated(input_fn: Callable[[], Dataset]) -> Callable[[], Dataset]:
    return lambda: input_fn().repeat()


@pytest.mark.parametrize("num_ids", [40, 40_000])
def test_each_part_learns_what_it_is_given(tmp_path: Path, num_ids: int) -> None:
    model = DNNLinearCombinedRegressor([16], **PARTS, **FAST, model_dir=str(tmp_path), config=CONFIG)
    model.train(repeated(records(num_ids=num_ids)), max_steps=600)
    linear = ["linear/linear_model/bias_weights", "linear/linear_model/word/weights"]
    deep = [f"dnn/{layer}/{name}" for layer in ("hiddenlayer_0", "logits") for name in ("bias", "kernel")]
    tables = linear[1:] if num_ids > 1000 else []
    assert sorted({*model.get_variable_names(), *tables}) == sorted(["global_step", *linear, *deep])
    ids = np.arange(40) * (num_ids // 40)
    weights = model.get_table_rows(linear[1], ids) if tables else model.get_variable_value(linear[1])[ids]
    assert np.corrcoef(weights[:, 0], EFFECTS)[0, 1] > 0.99
    assert model.evaluate(records(num_ids=num_ids))["average_loss"] < 0.05 * VALUES.var()


def test_each_part_has_the_optimizer_that_it_is_given(tmp_path: Path) -> None:
    still = GradientDescent(learning_rate=0.0)
    model = DNNLinearCombinedRegressor(
        [4], **PARTS, linear_optimizer=still, dnn_optimizer=Adam(), model_dir=str(tmp_path), config=CONFIG
    )
    model.train(repeated(records()), max_steps=5)
    assert not model.get_variable_value("linear/linear_model/word/weights").any()
    assert not model.get_variable_value("linear/linear_model/bias_weights").any()
    assert model.get_variable_value("dnn/logits/bias").any()


def test_without_names_each_part_reads_all_features(tmp_path: Path) -> None:
    model = DNNLinearCombinedClassifier([4], n_classes=3, model_dir=str(tmp_path), config=CONFIG)
    labels = np.digitize(VALUES, [1.0, 2.0])
    model.train(repeated(records(labels)), max_steps=5)
    assert model.get_variable_value("linear/linear_model/x/weights").shape == (2, 3)
    assert model.get_variable_value("linear/linear_model/word/weights").shape == (40, 3)
    assert model.get_variable_value("dnn/hiddenlayer_0/kernel").shape == (42, 4), "a column for each word"
    [first, *others] = model.predict(records(labels))
    assert {name: value.shape for name, value in first.items()} == {
        "logits": (3,),
        "probabilities": (3,),
        "class_ids": (1,),
        "classes": (1,),
        "all_class_ids": (3,),
        "all_classes": (3,),
    }
    assert len(others) == 399


def test_defaults_are_the_references() -> None:
    params = DNNLinearCombinedClassifier([4], model_dir="unused").params
    assert params["linear_optimizer"] is None, "its learning rate depends on the features"
    assert (params["dnn_optimizer"].config()["name"], params["dnn_optimizer"].learning_rate) == ("Adagrad", 0.001)


def test_all_faults_come_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        DNNLinearCombinedRegressor(
            [0], linear_feature_columns="word", linear_optimizer="Ftrl", dnn_optimizer=None, label_dimension=0
        )
    assert caught.value.faults == (
        "DNNLinearCombinedRegressor: dnn_hidden_units is [0], expected a list of integers >= 1",
        "DNNLinearCombinedRegressor: linear_feature_columns is 'word', expected a list of names of features, each once",
        "DNNLinearCombinedRegressor: dnn_feature_columns is missing: name the features of both parts, or of neither "
        "(each reads all); for one part alone use LinearClassifier or LinearRegressor",
        "DNNLinearCombinedRegressor: dnn_optimizer is None, expected an Optimizer such as "
        "Adagrad(learning_rate=0.001), or the name of one",
        "DNNLinearCombinedRegressor: label_dimension is 0, expected an integer >= 1",
        "DNNLinearCombinedRegressor: linear_optimizer: 'Ftrl' has no default learning rate: give Ftrl(learning_rate)",
    )


@pytest.mark.parametrize("names", [[], ["x", "x"], ["x", 3]])
def test_names_that_are_none(names: Any) -> None:
    with pytest.raises(UsageError, match=r"dnn_feature_columns is .* expected a list of names of features, each once"):
        DNNLinearCombinedClassifier([4], linear_feature_columns=["x"], dnn_feature_columns=names)


@pytest.mark.parametrize(
    ("kind", "labels"), [(DNNLinearCombinedRegressor, VALUES), (DNNLinearCombinedClassifier, WORDS % 2)]
)
def test_a_name_that_is_no_feature_is_told_with_the_features(
    tmp_path: Path, kind: Callable[..., Estimator], labels: Any
) -> None:
    parts = PARTS | {"linear_feature_columns": ["wrod"]}
    model = kind([4], **parts, model_dir=str(tmp_path), config=CONFIG)
    expected = r"linear_feature_columns names 'wrod', which is not a feature: the features are 'word', 'x'.*'word'\?"
    with pytest.raises(InputError, match=expected):
        model.train(records(labels), max_steps=1)


def test_a_single_array_has_no_feature_of_a_name(tmp_path: Path) -> None:
    parts = {"linear_feature_columns": ["x"], "dnn_feature_columns": ["x"]}
    model = DNNLinearCombinedRegressor([4], **parts, model_dir=str(tmp_path), config=CONFIG)
    expected = (
        "linear_feature_columns names 'x', which is not a feature: the features are one array, which has no name; lea"
    )
    with pytest.raises(InputError, match=expected):
        model.train(lambda: (np.ones((4, 2), np.float32), np.ones(4, np.float32)), max_steps=1)


def test_labels_are_looked_at_before_anything_starts(tmp_path: Path) -> None:
    model = DNNLinearCombinedClassifier([4], n_classes=2, model_dir=str(tmp_path / "model"), config=CONFIG)
    with pytest.raises(InputError, match="row 0 of the train input"):
        model.train(records(np.full(400, 2)), max_steps=1)
