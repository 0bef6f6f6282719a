"""Laws for every table and every set of options."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.columns import statistics
from psflow.ps_runtime.columns.features import FeatureSpec
from psflow.ps_runtime.columns.options import ColumnOptions, Quantiles
from psflow.ps_runtime.columns.preprocessing import Preprocessing

Learn = Callable[..., Preprocessing]

law = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

NUMBER_OPTIONS = st.builds(
    ColumnOptions,
    normalize=st.sampled_from([None, "standard", "min_max"]),
    impute=st.sampled_from([None, "mean", "median", "most_frequent", 7]),
    indicator=st.booleans(),
) | st.builds(ColumnOptions, buckets=st.sampled_from([Quantiles(3), (0, 10)]), impute=st.sampled_from([None, "median"]))
WORD_OPTIONS = st.builds(
    ColumnOptions,
    vocabulary=st.sampled_from(["auto", ("b", "a", "z")]),
    impute=st.sampled_from([None, "most_frequent", "a"]),
) | st.builds(ColumnOptions, hash_buckets=st.just(9), impute=st.sampled_from([None, "most_frequent"]))


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Tables whose first row has no missing values."""
    numbers = st.none() | st.just(float("nan")) | st.floats(-1e6, 1e6, width=32)
    rows = draw(
        st.lists(st.tuples(numbers, st.none() | st.integers(-50, 50), st.sampled_from([None, *"aabcä"])), max_size=40)
    )
    a, b, c = zip((1.5, 2, "a"), *rows, strict=True)
    return pa.table({"a": pa.array(a, pa.float64()), "b": pa.array(b, pa.int64()), "c": pa.array(c, pa.string())})


OPTIONS = st.fixed_dictionaries({"a": NUMBER_OPTIONS, "b": NUMBER_OPTIONS, "c": WORD_OPTIONS})


def assert_same(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert list(one) == list(two)
    for name, array in one.items():
        assert array.tobytes() == two[name].tobytes(), name


@law
@given(tables(), OPTIONS, st.data())
def test_applying_to_parts_is_applying_to_the_whole(
    learn: Learn, table: pa.Table, options: dict[str, ColumnOptions], data: st.DataObject
) -> None:
    learned = learn(table, options)
    cut = data.draw(st.integers(0, table.num_rows))
    parts = [learned.apply(part) for part in (table.slice(0, cut), table.slice(cut))]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    assert_same(learned.apply(table), joined)
    assert_same(learned.apply(pa.concat_tables([table.slice(0, cut), table.slice(cut)])), joined)


@law
@given(st.lists(st.floats(-0.5, 1e6), min_size=1, max_size=40), st.data())
def test_a_logarithm_of_parts_is_that_of_the_whole(learn: Learn, numbers: list[float], data: st.DataObject) -> None:
    table = pa.table({"x": numbers})
    learned = learn(table, {"x": ColumnOptions(normalize="log1p")})
    cut = data.draw(st.integers(0, len(numbers)))
    parts = [learned.apply(part)["x"] for part in (table.slice(0, cut), table.slice(cut))]
    np.testing.assert_allclose(np.concatenate(parts), np.log1p(numbers), rtol=1e-6, atol=1e-40)
    assert_same(learned.apply(table), {"x": np.concatenate(parts)})


@law
@given(tables(), OPTIONS)
def test_plain_data_applies_equally_bit_for_bit(
    learn: Learn, table: pa.Table, options: dict[str, ColumnOptions]
) -> None:
    learned = learn(table, options)
    again = Preprocessing.from_facts(json.loads(json.dumps(learned.to_facts())))
    assert again == learned
    assert_same(again.apply(table), learned.apply(table))


def close(one: Any, two: Any) -> bool:
    """Return whether plain data is equal but for rounding."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(close(value, two[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(two) and all(map(close, one, two))
    return bool(one == pytest.approx(two, rel=1e-9, abs=1e-9)) if isinstance(one, float) else bool(one == two)


@law
@given(tables(), OPTIONS, st.data())
def test_the_cuts_between_chunks_make_no_difference(
    learn: Learn,
    monkeypatch: pytest.MonkeyPatch,
    table: pa.Table,
    options: dict[str, ColumnOptions],
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(statistics, "RESERVOIR_SIZE", 5)
    cuts = data.draw(st.lists(st.integers(0, table.num_rows), max_size=6))
    whole = learn(table, options).to_facts()
    assert close(learn(table, options, cuts=cuts).to_facts(), whole)


@law
@given(tables(), st.fixed_dictionaries({"a": NUMBER_OPTIONS, "b": NUMBER_OPTIONS}))
def test_a_group_is_its_columns_side_by_side(learn: Learn, table: pa.Table, options: dict[str, ColumnOptions]) -> None:
    single = learn(table, options)
    numbers = [spec.name for spec in single.specs if spec == FeatureSpec(spec.name, "float32", ())]
    features = single.apply(table)
    if numbers:
        grouped = learn(table, options, {"g": "numeric"}).apply(table)
        assert grouped.pop("g").tobytes() == np.stack([features.pop(name) for name in numbers], axis=1).tobytes()
        assert_same(grouped, features)


@law
@given(tables(), OPTIONS)
def test_ids_are_below_their_number_and_only_reported_missing_values_are_nan(
    learn: Learn, table: pa.Table, options: dict[str, ColumnOptions]
) -> None:
    learned = learn(table, options)
    missing = learned.missing_by_column(table)
    features = learned.apply(table)
    for spec in learned.specs:
        if spec.num_ids is None:
            assert np.flatnonzero(np.isnan(features[spec.name])).tolist() == list(missing.get(spec.name, []))
        else:
            assert features[spec.name].min() >= 0
            assert features[spec.name].max() < spec.num_ids
