"""DNNRegressor, trained in this process, beside scikit-learn's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from psflow import Adam, Dataset, DNNRegressor, RunConfig
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.model.canned.regression_head import RegressionHead


@pytest.mark.filterwarnings("ignore:.*Maximum iterations:sklearn.exceptions.ConvergenceWarning")
def test_it_explains_as_much_as_an_mlp_of_scikit_learn(tmp_path: Path) -> None:
    matrix, values = make_friedman1(800, random_state=0)
    features = StandardScaler().fit_transform(matrix).astype(np.float32)
    labels = ((values - values.mean()) / values.std()).astype(np.float32)
    train, test = slice(0, 600), slice(600, None)
    reference = MLPRegressor(
        hidden_layer_sizes=(32,), learning_rate_init=0.01, batch_size=60, max_iter=60, random_state=1
    )
    reference.fit(features[train], labels[train])
    config = RunConfig(tf_random_seed=3, save_checkpoints_steps=10_000)
    estimator = DNNRegressor([32], optimizer=Adam(learning_rate=0.01), model_dir=str(tmp_path), config=config)
    estimator.train(
        lambda: Dataset({"x": features[train]}, labels[train]).shuffle(2000, seed=1).batch(60).repeat(),
        max_steps=600,
    )
    results = estimator.evaluate(lambda: Dataset({"x": features[test]}, labels[test]).batch(100))
    assert results.keys() == {"average_loss", "label/mean", "prediction/mean", "loss", "global_step"}
    explained = 1 - results["average_loss"] / labels[test].var()
    assert explained == pytest.approx(reference.score(features[test], labels[test]), abs=0.02)
    assert explained > 0.95
    [first, *_] = estimator.predict(lambda: Dataset({"x": features[test]}).batch(100))
    assert first["predictions"].shape == (1,)


def test_defaults_are_the_references() -> None:
    params = DNNRegressor([4], model_dir="unused").params
    assert (params["hidden_units"], params["head"]) == ([4], RegressionHead(1))
    assert params["optimizer"].config() == {
        "name": "Adagrad",
        "initial_accumulator_value": 0.1,
        "epsilon": 0.0,
        "weight_decay": 0.0,
    }
    assert params["optimizer"].learning_rate == 0.05


def test_all_faults_come_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        DNNRegressor([0], label_dimension=0, optimizer=None)
    assert caught.value.faults == (
        "DNNRegressor: hidden_units is [0], expected a list of integers >= 1",
        "DNNRegressor: label_dimension is 0, expected an integer >= 1",
        "DNNRegressor: optimizer is None, expected an Optimizer such as Adagrad(learning_rate=0.05), or the "
        "name of one",
    )


def test_labels_are_looked_at_before_anything_starts(tmp_path: Path) -> None:
    estimator = DNNRegressor([4], label_dimension=2, model_dir=str(tmp_path))
    with pytest.raises(InputError, match=r"expected labels of shape \(3, 2\) .* of the train input, got \(3,\)"):
        estimator.train(lambda: Dataset({"x": [1.0, 2.0, 3.0]}, [1.0, 2.0, 3.0]).batch(3), max_steps=1)
    assert not list(tmp_path.iterdir())
