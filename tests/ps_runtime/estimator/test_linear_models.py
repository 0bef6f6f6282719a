"""LinearClassifier and LinearRegressor, trained in this process, beside scikit-learn's linear models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_regression
from sklearn.linear_model import LinearRegression, LogisticRegression

from psflow import Adam, Dataset, LinearClassifier, LinearRegressor, RunConfig
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.regression_head import RegressionHead

CONFIG = RunConfig(tf_random_seed=3, save_checkpoints_steps=10_000)


def test_a_regressor_finds_the_least_squares(tmp_path: Path) -> None:
    matrix, values = make_regression(200, 6, n_targets=2, noise=5.0, bias=20.0, random_state=1)
    features, labels = matrix.astype(np.float32), (values / values.std()).astype(np.float32)
    reference = LinearRegression().fit(features, labels)
    estimator = LinearRegressor(label_dimension=2, model_dir=str(tmp_path), config=CONFIG)
    estimator.train(lambda: Dataset({"x": features}, labels).batch(200).repeat(), max_steps=300)
    weights = estimator.get_variable_value("linear/linear_model/x/weights")
    np.testing.assert_allclose(weights.T, reference.coef_, atol=1e-5)
    bias = estimator.get_variable_value("linear/linear_model/bias_weights")
    np.testing.assert_allclose(bias, reference.intercept_, atol=1e-5)
    results = estimator.evaluate(lambda: Dataset({"x": features}, labels).batch(64))
    assert results.keys() == {"average_loss", "label/mean", "prediction/mean", "loss", "global_step"}
    assert results["average_loss"] == pytest.approx(np.mean((reference.predict(features) - labels) ** 2), rel=1e-4)
    assert results["label/mean"] == pytest.approx(labels.mean(), rel=1e-5)
    assert results["prediction/mean"] == pytest.approx(labels.mean(), rel=1e-4)  # as that of all least squares
    predictions = list(estimator.predict(lambda: Dataset({"x": features[:5]}).batch(2)))
    assert [p["predictions"].shape for p in predictions] == [(2,)] * 5
    np.testing.assert_allclose([p["predictions"] for p in predictions], reference.predict(features[:5]), atol=1e-4)


def test_a_classifier_is_as_accurate_as_logistic_regression(tmp_path: Path) -> None:
    digits = load_digits()
    features, labels = (digits.data / 16).astype(np.float32), digits.target
    train, test = slice(0, 1200), slice(1200, None)
    reference = LogisticRegression(max_iter=1000).fit(features[train], labels[train])
    estimator = LinearClassifier(n_classes=10, model_dir=str(tmp_path), config=CONFIG)
    estimator.train(
        lambda: Dataset({"x": features[train]}, labels[train]).shuffle(2000, seed=1).batch(64).repeat(),
        max_steps=600,
    )
    results = estimator.evaluate(lambda: Dataset({"x": features[test]}, labels[test]).batch(100))
    assert results.keys() == {"accuracy", "average_loss", "loss", "global_step"}
    assert results["accuracy"] == pytest.approx(reference.score(features[test], labels[test]), abs=0.01)


@pytest.mark.parametrize(("kind", "head"), [(LinearClassifier, ClassifierSpec), (LinearRegressor, RegressionHead)])
def test_defaults_are_the_references(kind: Any, head: Any) -> None:
    of_columns = {"feature_columns": None, "sparse_combiner": "sum"}
    assert kind(model_dir="unused").params == {"head": head(), "optimizer": None} | of_columns
    adam = Adam(learning_rate=0.1)
    assert kind(None, 3, adam, "unused").params == {"head": head(3), "optimizer": adam} | of_columns


def test_all_faults_come_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        LinearClassifier(n_classes=1, optimizer="Ftrl")
    assert caught.value.faults == (
        "LinearClassifier: n_classes is 1, expected an integer >= 2",
        "LinearClassifier: optimizer: 'Ftrl' has no default learning rate: give Ftrl(learning_rate)",
    )
    with pytest.raises(UsageError, match="LinearRegressor: label_dimension is 0, expected an integer >= 1"):
        LinearRegressor(label_dimension=0)


@pytest.mark.parametrize(
    ("estimator", "labels", "words"),
    [
        (LinearClassifier(None, 3, model_dir="unused"), [0, 1, 3], "label of row 2 of the train input is 3, expected"),
        (LinearRegressor(model_dir="unused"), ["a", "b", "c"], "expected labels that are numbers, got <U1 such as"),
        (LinearRegressor(None, 2, model_dir="unused"), [1, 2, 3], r"labels of shape \(3, 2\) .* the train input"),
    ],
)
def test_labels_are_looked_at_before_anything_starts(estimator: Any, labels: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        estimator.train(lambda: Dataset({"x": [1.0, 2.0, 3.0]}, np.array(labels)).batch(3), max_steps=1)
    assert not Path("unused").exists()
