from __future__ import annotations

import datetime
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psflow.ps_runtime.columns.features import FeatureSpec
from psflow.ps_runtime.columns.hashing import hash_ids
from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.errors import CellError, InputError

Learn = Callable[..., Preprocessing]

TABLE = pa.table(
    {
        "id": [1, 2, 3, 4],
        "age": [20.0, None, 40.0, 60.0],
        "rooms": [1, 2, 3, None],
        "work": ["private", None, "state", "private"],
        "code": [10, 10, 20, None],
        "born": [datetime.date(1970, 1, 2), None, datetime.date(1970, 1, 3), datetime.date(1970, 1, 5)],
        "pixels": pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
        "income": ["low", "high", None, "low"],
    }
)
OPTIONS = {
    "age": ColumnOptions(normalize="min_max", impute="mean", indicator=True),
    "code": ColumnOptions(hash_buckets=100, embedding=8),
    "born": ColumnOptions(buckets=[1, 3]),
}


@pytest.fixture(scope="module")
def learned(learn: Learn) -> Preprocessing:
    return learn(TABLE, OPTIONS, {"dense": "numeric"}, label=LabelOptions("income"), keys=["id"])


def test_columns_become_features(learned: Preprocessing) -> None:
    features = learned.apply(TABLE)
    assert list(features) == ["dense", "work", "code", "born", "pixels"]
    np.testing.assert_array_equal(
        features["dense"], np.array([[0, 0, 1], [0.5, 1, 2], [0.5, 0, 3], [1, 0, np.nan]], np.float32)
    )
    assert features["work"].tolist() == [0, 2, 1, 0]
    ten, twenty = hash_ids(["10", "20"], 100)
    assert features["code"].tolist() == [ten, ten, twenty, 100]
    assert features["born"].tolist() == [1, 3, 1, 2]
    np.testing.assert_array_equal(features["pixels"], np.array([[1, 2], [np.nan, np.nan], [3, 4], [5, 6]], np.float32))


def test_specs_describe_the_features(learned: Preprocessing) -> None:
    assert learned.specs == (
        FeatureSpec("dense", "float32", (3,)),
        FeatureSpec("work", "int64", (), 3),
        FeatureSpec("code", "int64", (), 101, 8),
        FeatureSpec("born", "int64", (), 4),
        FeatureSpec("pixels", "float32", (2,)),
    )
    for table in (TABLE, TABLE.slice(0, 0)):
        for spec, array in zip(learned.specs, learned.apply(table).values(), strict=True):
            assert (array.dtype, array.shape) == (spec.dtype, (table.num_rows, *spec.shape))
            assert array.flags.c_contiguous
            assert array.flags.writeable


def test_unknown_strings_have_the_id_after_the_known_ones(learned: Preprocessing) -> None:
    table = TABLE.set_column(3, "work", pa.array(["state", "navy", "", "Private"]))
    assert learned.apply(table)["work"].tolist() == [1, 2, 2, 2]


def test_other_columns_and_another_order_make_no_difference(learned: Preprocessing) -> None:
    other = TABLE.select(TABLE.column_names[::-1]).append_column("more", pa.array(range(4)))
    for name, array in learned.apply(other).items():
        np.testing.assert_array_equal(array, learned.apply(TABLE)[name])


def test_whole_numbers_may_come_as_fractions(learned: Preprocessing, learn: Learn) -> None:
    table = TABLE.set_column(4, "code", pa.array([10.0, 10.0, 20.0, float("nan")]))
    np.testing.assert_array_equal(learned.apply(table)["code"], learned.apply(TABLE)["code"])
    table = TABLE.set_column(2, "rooms", pa.array([1.5, 2.0, 3.0, None]))
    assert learned.apply(table)["dense"][0, 2] == 1.5
    with pytest.raises(CellError, match=r"column 'code', row 2 .*: expected a whole number, got 20.5"):
        learned.apply(TABLE.set_column(4, "code", pa.array([10.0, 10.0, 20.5, None])))


def test_a_number_without_logarithm_is_named_beyond_the_first_block(learn: Learn) -> None:
    learned = learn(pa.table({"x": [1.0]}), {"x": ColumnOptions(normalize="log1p")})
    numbers = np.zeros(20_000)
    numbers[17_000] = -1
    with pytest.raises(CellError, match=r"column 'x', row 17000 .*: expected a number above -1 for log1p, got -1.0"):
        learned.apply(pa.table({"x": numbers}))


def test_a_constant_column_becomes_zero_and_a_huge_number_infinite(learn: Learn) -> None:
    table = pa.table({"a": [0.1, 0.1], "b": [7, 7], "c": [1e300, 1.0]})
    learned = learn(table, {"a": ColumnOptions(normalize="standard"), "b": ColumnOptions(normalize="min_max")})
    features = learned.apply(table)
    assert [features[name].tolist() for name in "abc"] == [[0, 0], [0, 0], [np.inf, 1]]
    assert learned.apply(pa.table({"a": [0.1], "b": [9], "c": [0]}))["b"].tolist() == [2]


def test_missing_values_of_columns_that_are_not_imputed_are_reported(learned: Preprocessing) -> None:
    assert {name: rows.tolist() for name, rows in learned.missing_by_column(TABLE).items()} == {
        "rooms": [3],
        "work": [1],
        "code": [3],
        "born": [1],
        "pixels": [1],
        "income": [2],
    }
    assert learned.missing_by_column(TABLE.slice(0, 1)) == {}
    assert "income" not in learned.missing_by_column(TABLE.drop_columns(["income"]))


def test_nothing_is_guessed_where_there_are_no_labels_or_weights(learn: Learn) -> None:
    learned = learn(pa.table({"x": [1]}))
    with pytest.raises(ValueError, match="no labels were learned"):
        learned.labels(TABLE)
    with pytest.raises(ValueError, match="there is no column of weights"):
        learned.weights(TABLE)


def test_all_missing_columns_are_named(learned: Preprocessing) -> None:
    with pytest.raises(InputError, match=r"column 'age' \(float64\) is missing\ncolumn 'work' \(string\) is missing"):
        learned.apply(TABLE.drop_columns(["age", "work"]))


def test_it_travels_as_plain_data(learned: Preprocessing) -> None:
    learned.apply(TABLE)
    for copy in (
        Preprocessing.from_facts(json.loads(json.dumps(learned.to_facts()))),
        pickle.loads(pickle.dumps(learned)),
    ):
        assert copy == learned
        assert learned.differences(copy) == []


def corrupt(facts: dict[str, Any], place: str, value: Any) -> None:
    *path, last = (int(key) if key.isdigit() else key for key in place.split("."))
    node: Any = facts
    for key in path:
        node = node[key]
    node[last] = value


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("features.1.kind", "vocabulary"),
        ("features.0.members.0.kind", "array"),
        ("features.0.members.0.normalizer.kind", "max"),
        ("features.1.vocabulary", ["a", "a"]),
        ("features.1.fill", "unknown"),
        ("features.2.column", "nowhere"),
        ("columns.0.raw.type", "text"),
        ("columns.0.read_as", "text"),
        ("label.dtype", "int32"),
        ("features.3.edges", ["x"]),
    ],
)
def test_plain_data_that_is_wrong_is_refused(learned: Preprocessing, place: str, value: Any) -> None:
    facts = json.loads(json.dumps(learned.to_facts()))
    corrupt(facts, place, value)
    with pytest.raises(ValueError, match=r".+"):
        Preprocessing.from_facts(facts)


def test_lines_say_what_was_learned(learned: Preprocessing, learn: Learn) -> None:
    assert learned.lines() == [
        "dense: a matrix of 3 columns, age, age_is_missing, rooms",
        "age: minimum 20, maximum 60, 1 missing value becomes 40",
        "rooms: 1 missing value",
        "work: 2 categories, 1 missing value; the most frequent is 'private'",
        "code: strings hashed into 100 buckets, 1 missing value",
        "born: 3 buckets, edges 1, 3, 1 missing value",
        "pixels: 1 missing value",
        "income: labels, classes 'high', 'low', 1 missing value",
    ]
    table = pa.table({"a": [1.0, 2.0], "b": [3, 3], "id": [2**24 + 1, 5], "c": [None, "x"], "plain": [2**24, 5]})
    options = {
        "a": ColumnOptions(normalize="standard", impute=2.25),
        "b": ColumnOptions(normalize="standard"),
        "c": ColumnOptions(impute="most_frequent"),
    }
    assert learn(table, options).lines() == [
        "a: mean 1.5, standard deviation 0.5, 0 missing values become 2.25",
        "b: constant 3 becomes 0",
        "id: it has whole numbers above 2**24, which float32 rounds: set normalize, or vocabulary or hash_buckets if "
        "they are ids",
        "c: 1 category, 1 missing value becomes 'x'; the most frequent is 'x'",
    ]


def test_differences_are_sentences(learned: Preprocessing, learn: Learn) -> None:
    older = pa.concat_tables([TABLE.slice(0, 3), TABLE.slice(0, 1).set_column(1, "age", pa.array([80.0]))])
    older = older.set_column(3, "work", pa.array(["state", "state", "navy", None]))
    other = learn(older, OPTIONS | {"code": ColumnOptions(hash_buckets=50)}, {"dense": ["rooms", "age"]})
    assert learned.differences(other) == [
        "feature 'id' is new",
        "feature 'age_is_missing' is new",
        "feature 'income' is new",
        "in group 'dense' column 'age_is_missing' is missing",
        f"column 'age' has fill {140 / 3!r}, expected 40.0",
        "column 'age' has maximum 80.0, expected 60.0",
        "column 'work' has other vocabulary: new 'navy'; missing 'private'",
        "column 'code' has hash_buckets 50, expected 100",
        "column 'code' has embedding none, expected 8",
        "the label is none, expected 'income'",
        "the key columns are none, expected id",
    ]


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"x": ["b", "a", "b"]}, "column 'x' has other vocabulary: number 1 is 'b', expected 'a'"),
        ({"x": [1, 2, 3]}, "column 'x' is int64, expected string"),
        ({"x": [1.5, 2.5, 3.5]}, "column 'x' is float64, expected string"),
        ({}, "feature 'x' is missing"),
    ],
)
def test_a_difference_is_named(learn: Learn, other: dict[str, Any], sentence: str) -> None:
    more = {"z": [1.0, 2.0, 3.0]}
    mine = learn(pa.table({"x": ["a", "a", "b"], **more}))
    assert mine.differences(learn(pa.table(other | more)))[0] == sentence


def test_strings_that_were_learned_are_as_good_as_those_that_are_given(learn: Learn) -> None:
    table = pa.table({"x": ["a", "b", "a"]})
    assert learn(table).differences(learn(table, {"x": ColumnOptions(vocabulary=["a", "b"])})) == []


def test_what_was_counted_alone_is_no_difference(learn: Learn) -> None:
    first, second = learn(pa.table({"x": [1.0, None]})), learn(pa.table({"x": [2.0]}))
    assert first.differences(second) == []
    assert first != second
    assert first.differences(replace(first, weight=first.columns[0])) == ["the column of weights is 'x', expected none"]


def test_whole_numbers_may_be_ids_already(learn: Learn) -> None:
    towns = pa.table({"town": [2, 0, None], "job": [1.0, None, 0.0]})
    options = {"town": ColumnOptions(num_ids=3, embedding=4), "job": ColumnOptions(num_ids=2, impute=1)}
    learned = learn(towns, options)
    assert [features.tolist() for features in learned.apply(towns).values()] == [[2, 0, 3], [1, 1, 0]]
    assert learned.specs[0] == FeatureSpec("town", "int64", (), 4, 4)
    assert learned.lines() == ["town: 3 ids, 1 missing value", "job: 2 ids, 1 missing value becomes 1"]
    assert Preprocessing.from_facts(json.loads(json.dumps(learned.to_facts()))) == learned
    [difference] = learned.differences(learn(towns, options | {"town": ColumnOptions(num_ids=5, embedding=4)}))
    assert "num_ids" in difference


@pytest.mark.parametrize("value", [3, -1, 1.5, float("inf")])
def test_a_number_that_is_no_id_is_refused(learn: Learn, value: float) -> None:
    learned = learn(pa.table({"town": [1.0]}), {"town": ColumnOptions(num_ids=3)})
    with pytest.raises(CellError, match=r"expected a whole number from 0 to 2, got .*; raise num_ids") as caught:
        learned.apply(pa.table({"town": [0.0, value]}))
    assert (caught.value.column, caught.value.row) == ("town", 1)


class _Name(str):
    """A name that counts how often names are compared."""

    num_compared = 0

    def __eq__(self, other: object) -> bool:
        _Name.num_compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_what_some_columns_are_enough_for_takes_one_look_at_each(learn: Learn) -> None:
    names = [f"c{i}" for i in range(200)]
    learned = learn(pa.table({name: [1.0, 2.0] for name in names}))
    assert learned.computable([_Name(name) for name in names]) == set(names)
    assert _Name.num_compared <= 2 * len(names)
