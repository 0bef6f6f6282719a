"""BaselineClassifier and BaselineRegressor: shares of classes and means of labels, whatever the features are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import BaselineClassifier, BaselineRegressor, Dataset, RunConfig
from psflow.ps_runtime.errors import InputError, UsageError

CONFIG = RunConfig(tf_random_seed=3, save_checkpoints_steps=10_000)
LABELS = np.repeat([0, 1, 2], [60, 30, 10])
FEATURES = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)


def test_a_classifier_finds_the_shares_of_the_classes(tmp_path: Path) -> None:
    model = BaselineClassifier(n_classes=3, model_dir=str(tmp_path), config=CONFIG)
    model.train(lambda: Dataset({"x": FEATURES}, LABELS).batch(100).repeat(), max_steps=300)
    assert model.get_variable_names() == ["baseline/bias", "global_step"]
    [first, *others] = model.predict(lambda: Dataset({"x": FEATURES[:5]}).batch(2))
    np.testing.assert_allclose(first["probabilities"], [0.6, 0.3, 0.1], atol=0.01)
    assert [row["class_ids"] for row in others] == [0] * 4
    assert model.evaluate(lambda: Dataset({"x": FEATURES}, LABELS).batch(30))["accuracy"] == pytest.approx(0.6)


@pytest.mark.parametrize("as_mapping", [True, False])
def test_a_regressor_finds_the_mean_of_the_labels(tmp_path: Path, as_mapping: bool) -> None:
    features: Any = {"x": FEATURES} if as_mapping else FEATURES
    labels = np.stack([LABELS, -2.0 * LABELS], axis=1).astype(np.float32)
    model = BaselineRegressor(label_dimension=2, model_dir=str(tmp_path), config=CONFIG)
    model.train(lambda: Dataset(features, labels).batch(100).repeat(), max_steps=300)
    [first, *_] = model.predict(lambda: Dataset(features).batch(100))
    np.testing.assert_allclose(first["predictions"], [0.5, -1.0], atol=0.01)


def test_defaults_are_the_references() -> None:
    for params in (BaselineClassifier(model_dir="unused").params, BaselineRegressor(model_dir="unused").params):
        assert params["optimizer"].config()["name"] == "Ftrl"
        assert params["optimizer"].learning_rate == 0.3


def test_all_faults_come_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        BaselineRegressor(label_dimension=0, optimizer="Ftrl")
    assert caught.value.faults == (
        "BaselineRegressor: label_dimension is 0, expected an integer >= 1",
        "BaselineRegressor: optimizer: 'Ftrl' has no default learning rate: give Ftrl(learning_rate)",
    )
    with pytest.raises(UsageError, match="BaselineClassifier: n_classes is 1, expected an integer >= 2"):
        BaselineClassifier(n_classes=1)


def test_labels_are_looked_at_before_anything_starts(tmp_path: Path) -> None:
    model = BaselineClassifier(n_classes=2, model_dir=str(tmp_path / "model"), config=CONFIG)
    with pytest.raises(InputError, match="row 90 of the train input"):
        model.train(lambda: Dataset({"x": FEATURES}, LABELS).batch(10), max_steps=1)
