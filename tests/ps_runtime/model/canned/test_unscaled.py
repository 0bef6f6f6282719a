"""Warnings about numbers that canned models read unscaled."""

from __future__ import annotations

import logging
from functools import partial

import numpy as np
import pytest

from psflow import (
    BaselineRegressor,
    ColumnOptions,
    Csv,
    Dataset,
    DNNLinearCombinedRegressor,
    Estimator,
    LinearRegressor,
    feature_column,
)
from psflow.ps_runtime.data.enforcement import schema_of
from psflow.ps_runtime.model.canned.unscaled import unscaled_sentences
from tests.ps_runtime.estimator.regression import regression, shuffled

ALL = {"feature_columns": None}
INCOMES = np.array([0.0, 250_000.0, np.nan])
ADVICE = "in the first batch of the train input; psflow does not scale features in Python: scale it, or use psflow init"


def sentences(features, params=ALL):
    return unscaled_sentences(features, schema_of(features, None), params, "the train input")


@pytest.mark.parametrize(
    ("features", "found"),
    [
        ({"income": INCOMES, "age": np.array([18, 90, 20])}, "feature 'income' ranges from 0 to 250,000"),
        ({"pixels": np.array([[0, 255]], np.uint8)}, "feature 'pixels' ranges from 0 to 255"),
        (np.array([[-60.5], [60.5]]), "feature the array ranges from -60.5 to 60.5"),
    ],
)
def test_a_wide_range_is_named_with_the_remedy(features, found):
    assert [sentence.split(f" {ADVICE}")[0] for sentence in sentences(features)] == [found]


def test_many_features_are_counted():
    [sentence] = sentences({f"x{number}": INCOMES for number in range(7)})
    assert "'x4' ranges from 0 to 250,000 and 2 more in the first batch" in sentence
    assert "'x5'" not in sentence


@pytest.mark.parametrize(
    "features",
    [
        {"age": np.array([0.0, 100.0])},
        {"large": np.array([5000.0, 5099.0])},
        {"text": np.array(["a", "b"])},
        {"is_new": np.array([True, False])},
        {"nothing": np.array([np.nan, np.inf])},
    ],
)
def test_other_features_are_fine(features):
    assert sentences(features) == ()


def test_columns_that_transform_a_number_are_fine():
    number = feature_column.numeric_column("income")
    scaled = feature_column.numeric_column("income", normalizer_fn=np.log1p)
    transformed = [feature_column.bucketized_column(number, [10.0, 1000.0]), scaled]
    assert sentences({"income": INCOMES}, {"feature_columns": transformed}) == ()
    assert sentences({"income": INCOMES}, {"linear_feature_columns": transformed, "dnn_feature_columns": [number]})


def houses():
    return Dataset({"area": np.array([50.0, 450.0]), "weight": np.array([1.0, 200.0])}, np.array([1.0, 2.0])).batch(2)


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if "ranges from" in record.getMessage()]


@pytest.mark.parametrize("make", [LinearRegressor, partial(DNNLinearCombinedRegressor, dnn_hidden_units=[2])])
def test_training_warns_once_and_not_of_weights(tmp_path, caplog, make):
    with caplog.at_level(logging.WARNING):
        make(model_dir=str(tmp_path), weight_column="weight").train(lambda: houses().repeat(), max_steps=3)
    [warning] = warnings_of(caplog)
    assert warning.startswith(f"feature 'area' ranges from 50 to 450 {ADVICE}")


def test_a_baseline_and_a_model_fn_are_not_judged(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        BaselineRegressor(model_dir=str(tmp_path / "baseline")).train(houses, max_steps=1)
        Estimator(regression, str(tmp_path / "own")).train(shuffled, max_steps=1)
    assert warnings_of(caplog) == []


@pytest.mark.parametrize(("normalize", "count"), [(None, 1), ("standard", 0)])
def test_tabular_files_name_their_own_remedy(tmp_path, caplog, normalize, count):
    path = tmp_path / "houses.csv"
    path.write_text("area,price\n50,1\n450,2\n60,1.5\n")
    files = Csv(str(path), label="price", columns={"area": ColumnOptions(normalize=normalize)})
    with caplog.at_level(logging.WARNING):
        LinearRegressor(model_dir=str(tmp_path / "model")).train(lambda: files.read().batch(3), max_steps=1)
    found = warnings_of(caplog)
    assert len(found) == count
    assert all("; set normalize: standard of its column, as psflow init does" in warning for warning in found)
