"""Exports of models that read feature columns: they take raw features, as training did."""

from __future__ import annotations

from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest

from psflow import Dataset, DNNLinearCombinedRegressor, DNNRegressor, LinearRegressor, RunConfig, initializers
from psflow import feature_column as fc
from psflow.ps_runtime.errors import ModelFnError
from tests.parity.columns import halved

CONFIG = RunConfig(tf_random_seed=1, save_checkpoints_steps=1000, log_step_count_steps=None)
COLORS = fc.categorical_column_with_vocabulary_list("color", ["red", "green"])
MANY = fc.categorical_column_with_hash_bucket("color", 5000)
ROWS = {"area": np.float32([1, 2]), "color": np.array([["red", ""], ["green", "red"]]), "town": np.array([0, 2])}


def houses() -> Dataset:
    return Dataset(ROWS, np.float32([3, 4])).batch(2)


def test_it_predicts_from_raw_features(tmp_path: Path) -> None:
    town = fc.categorical_column_with_identity("town", 3)
    area = fc.numeric_column("area", normalizer_fn=halved)
    vectors = fc.embedding_column(MANY, 2, initializer=initializers.normal(stddev=0.3))
    estimator = DNNLinearCombinedRegressor(
        [3],
        linear_feature_columns=[area, COLORS, fc.crossed_column(["color", town], 5000)],
        dnn_feature_columns=[fc.bucketized_column(area, [0.25]), vectors, fc.indicator_column(town)],
        model_dir=str(tmp_path / "model"),
        config=CONFIG,
    ).train(houses)
    exported = mlflow.pyfunc.load_model(estimator.export_saved_model(str(tmp_path / "export")))
    expected = [row["predictions"] for row in estimator.predict(lambda: ROWS)]
    np.testing.assert_allclose(exported.predict(ROWS)["predictions"], expected, rtol=1e-6)
    frame = pd.DataFrame({name: values.tolist() for name, values in ROWS.items()})
    np.testing.assert_allclose(exported.predict(frame)["predictions"], expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"feature 'color' has 3 in row 1, expected text"):
        exported.predict(frame.assign(color=[["red", ""], ["green", 3]]))


def test_it_takes_the_features_that_its_columns_read(tmp_path: Path) -> None:
    estimator = LinearRegressor(fc.numeric_column("area"), model_dir=str(tmp_path / "model"), config=CONFIG)
    exported = mlflow.pyfunc.load_model(estimator.train(houses).export_saved_model(str(tmp_path / "export")))
    assert exported.metadata.signature.inputs.input_names() == ["area"]
    rows = pd.DataFrame({"area": ROWS["area"]})
    expected = [row["predictions"] for row in estimator.predict(lambda: {"area": ROWS["area"]})]
    for frame in (rows, rows.assign(town=["?", "?"])):
        np.testing.assert_allclose(exported.predict(frame)["predictions"], expected, rtol=1e-6)


def test_it_has_no_place_for_a_lambda(tmp_path: Path) -> None:
    column = fc.numeric_column("area", normalizer_fn=lambda x: x / 2)
    estimator = LinearRegressor(column, model_dir=str(tmp_path / "model"), config=CONFIG).train(houses)
    with pytest.raises(ModelFnError, match=r"lambda.* cannot be exported: move it to the top level of its module"):
        estimator.export_saved_model(str(tmp_path / "export"))
    column = fc.embedding_column(COLORS, 2, initializer=np.ones)
    deep = DNNRegressor([], column, model_dir=str(tmp_path / "deep"))
    assert deep.params["feature_columns"] == [fc.embedding_column(COLORS, 2, initializer=np.ones)]
