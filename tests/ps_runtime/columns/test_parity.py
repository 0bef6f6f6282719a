"""The numbers of scikit-learn, which is independent of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import (
    KBinsDiscretizer,
    LabelEncoder,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions, Quantiles
from psflow.ps_runtime.columns.preprocessing import Preprocessing

Learn = Callable[..., Preprocessing]

RANDOM = np.random.default_rng(3)
ROWS = 2000
NUMBERS = RANDOM.normal(1000, 3, ROWS) ** 3
NUMBERS[RANDOM.random(ROWS) < 0.1] = np.nan
FEW = RANDOM.integers(0, 9, ROWS).astype(float)
FEW[RANDOM.random(ROWS) < 0.1] = np.nan
WORDS = np.array(["b", "a", "ä", "C"])[RANDOM.integers(0, 4, ROWS)]
CUTS = (1, 700, 701)


def feature(learn: Learn, values: Any, options: ColumnOptions) -> Any:
    table = pa.table({"x": values})
    return learn(table, {"x": options}, cuts=CUTS).apply(table)["x"]


@pytest.mark.parametrize(
    ("normalize", "scaler"), [("standard", StandardScaler()), ("min_max", MinMaxScaler())], ids=["standard", "min_max"]
)
def test_numbers_are_normalized_alike(learn: Learn, normalize: Any, scaler: Any) -> None:
    ours = feature(learn, NUMBERS, ColumnOptions(normalize=normalize))
    np.testing.assert_allclose(ours, scaler.fit_transform(NUMBERS[:, None])[:, 0], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("impute", ["mean", "median", "most_frequent"])
@pytest.mark.parametrize("values", [NUMBERS, FEW], ids=["numbers", "few"])
def test_missing_values_are_imputed_alike(learn: Learn, impute: Any, values: Any) -> None:
    imputer = SimpleImputer(strategy=impute, add_indicator=True)
    expected = imputer.fit_transform(values[:, None])
    table = pa.table({"x": values})
    learned = learn(table, {"x": ColumnOptions(impute=impute, indicator=True)}, {"g": "numeric"}, cuts=CUTS)
    np.testing.assert_allclose(learned.apply(table)["g"], expected, rtol=1e-7)


@pytest.mark.parametrize("encoder", [OneHotEncoder, OrdinalEncoder])
def test_the_same_strings_are_known(learn: Learn, encoder: Any) -> None:
    [categories] = encoder().fit(WORDS[:, None]).categories_
    learned: Any = learn(pa.table({"x": WORDS.tolist()}), cuts=CUTS).features[0]
    assert sorted(learned.vocabulary) == categories.tolist()
    ours = feature(learn, WORDS.tolist(), ColumnOptions(vocabulary=categories.tolist()))
    expected = OrdinalEncoder().fit_transform(WORDS[:, None])[:, 0]
    np.testing.assert_array_equal(ours, expected)


def test_labels_are_encoded_alike(learn: Learn) -> None:
    table = pa.table({"x": range(ROWS), "y": WORDS.tolist()})
    ours = learn(table, label=LabelOptions("y")).labels(table)
    np.testing.assert_array_equal(ours, LabelEncoder().fit_transform(WORDS))


def binned(values: Any, num_buckets: int) -> Any:
    binner = KBinsDiscretizer(
        num_buckets, encode="ordinal", strategy="quantile", quantile_method="linear", subsample=None
    )
    return binner.fit_transform(values[:, None])[:, 0]


def test_quantiles_are_exact_up_to_the_size_of_the_reservoir(learn: Learn) -> None:
    values = NUMBERS[~np.isnan(NUMBERS)]
    ours = feature(learn, values, ColumnOptions(buckets=Quantiles(10)))
    np.testing.assert_array_equal(ours, binned(values, 10))


def test_quantiles_are_within_their_rank_error_beyond_it(learn: Learn) -> None:
    values = np.random.default_rng(1).exponential(size=250_000)
    ours = feature(learn, values, ColumnOptions(buckets=Quantiles(10)))
    shares = np.cumsum(np.bincount(ours)[:10]) / len(values)
    expected = np.cumsum(np.bincount(binned(values, 10).astype(int))) / len(values)
    np.testing.assert_allclose(shares, expected, atol=0.0062)
    assert (shares != expected).any()
