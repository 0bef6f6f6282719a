from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psflow.ps_runtime.columns.features import (
    BucketIds,
    HashIds,
    IdentityIds,
    LogOnePlus,
    MinMax,
    Number,
    Standard,
    VocabularyIds,
)
from psflow.ps_runtime.columns.learner import Learner
from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions, Quantiles
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.errors import CellError, InputError, UsageError

Learn = Callable[..., Preprocessing]


def feature_of(learn: Learn, values: list[Any], **options: Any) -> Any:
    return learn(pa.table({"x": values}), {"x": ColumnOptions(**options)}).features[0]


@pytest.mark.parametrize(
    ("values", "options", "feature"),
    [
        ([1.0, 3.0, None], {}, Number("x")),
        ([1.0, 3.0, None], {"normalize": "standard"}, Number("x", None, Standard(2.0, 1.0))),
        ([1, 5, None], {"normalize": "min_max", "impute": "mean"}, Number("x", 3.0, MinMax(1.0, 5.0))),
        ([1.0, 3.0, 7.0], {"impute": "median", "normalize": "log1p"}, Number("x", 3.0, LogOnePlus())),
        ([2.5, 1.5, 2.5, 1.5], {"impute": "most_frequent"}, Number("x", 1.5)),
        ([None, 2.0], {"impute": 7}, Number("x", 7.0)),
        ([0.1] * 3, {"normalize": "standard"}, Number("x", None, Standard(0.1, 0.0))),
        ([0.1] * 3, {"normalize": "min_max"}, Number("x", None, MinMax(0.1, 0.1))),
        (["b", "a", "b", None], {}, VocabularyIds("x", ("b", "a"), is_learned=True)),
        (
            ["b", None, None],
            {"impute": "most_frequent", "embedding": 4},
            VocabularyIds("x", ("b",), "b", 4, is_learned=True),
        ),
        (["b", None, None], {"impute": "none"}, VocabularyIds("x", ("none", "b"), "none", is_learned=True)),
        (["b"], {"impute": "none"}, VocabularyIds("x", ("b", "none"), "none", is_learned=True)),
        (["c", "c", "a"], {"vocabulary": ["b", "a"], "impute": "most_frequent"}, VocabularyIds("x", ("b", "a"), "a")),
        ([7, 7, 10], {"vocabulary": "auto"}, VocabularyIds("x", ("7", "10"), is_learned=True)),
        ([True, False, False], {}, VocabularyIds("x", ("false", "true"), is_learned=True)),
        (["a"], {"hash_buckets": 9}, HashIds("x", 9)),
        ([3, 0], {"num_ids": 4, "embedding": 2}, IdentityIds("x", 4, None, 2)),
        ([3, 3, None, 0], {"num_ids": 4, "impute": "most_frequent"}, IdentityIds("x", 4, 3.0)),
        (["a", None], {"hash_buckets": 9, "impute": "most_frequent"}, HashIds("x", 9, "a")),
        ([1.0, 2.0], {"buckets": [0, 1.5], "impute": "mean"}, BucketIds("x", (0.0, 1.5), 1.5)),
        ([0, 1, 2, 3, 4], {"buckets": Quantiles(4)}, BucketIds("x", (1.0, 2.0, 3.0))),
        ([0, 0, 0, 9, 9, 9], {"buckets": Quantiles(3)}, BucketIds("x", (9.0,))),
        ([3, 3], {"buckets": "quantiles"}, BucketIds("x", ())),
        ([datetime.date(1970, 1, 3)], {"type": "number"}, Number("x")),
        (["1970-01-03", "1970-01-01"], {"type": "date", "normalize": "min_max"}, Number("x", None, MinMax(0.0, 2.0))),
    ],
)
def test_what_is_learned(learn: Learn, values: list[Any], options: dict[str, Any], feature: Any) -> None:
    assert feature_of(learn, values, **options) == feature


@pytest.mark.parametrize(
    ("values", "options", "fault"),
    [
        ([1.0, np.inf], {"normalize": "standard"}, "row 3 .*: expected a finite number to learn from, got inf"),
        ([1.0, -np.inf], {"impute": "median"}, "row 3 .*: expected a finite number to learn from, got -inf"),
        ([None, np.inf], {"buckets": "quantiles"}, "row 3 .*: expected a finite number to learn from, got inf"),
        ([5.0, -1.0], {"normalize": "log1p"}, "row 3 .*: expected a number above -1 for log1p, got -1.0"),
        ([5.0, 0.5], {"vocabulary": "auto"}, "row 3 .*: expected a whole number, got 0.5"),
        ([5.0, 0.5], {"type": "int64"}, "row 3 .*: expected a whole number, got 0.5"),
    ],
)
def test_a_bad_value_is_named_with_its_number_in_the_whole_input(
    learn: Learn, values: list[Any], options: dict[str, Any], fault: str
) -> None:
    table = pa.table({"x": pa.array([0.0, 2.0, *values], pa.float64())})
    with pytest.raises(CellError, match="column 'x', " + fault):
        learn(table, {"x": ColumnOptions(**options)}, cuts=[2])


def test_infinite_numbers_pass_where_nothing_is_learned_from_them(learn: Learn) -> None:
    assert feature_of(learn, [1.0, np.inf], impute=3) == Number("x", 3.0)


@pytest.mark.parametrize("options", [{"normalize": "standard"}, {"impute": "median"}, {"type": "string"}])
def test_a_column_of_missing_values_teaches_nothing(learn: Learn, options: dict[str, Any]) -> None:
    table = pa.table({"x": pa.nulls(2, pa.float64()), "z": pa.nulls(2, pa.float64())})
    with pytest.raises(InputError, match=r"column 'x' has only missing values.*\ncolumn 'z' has only missing values"):
        learn(table, {"x": ColumnOptions(**options), "z": ColumnOptions(**options)})
    assert learn(table).features == (Number("x"), Number("z"))


def test_numbers_too_large_to_normalize_are_refused(learn: Learn) -> None:
    for normalize in ("standard", "min_max"):
        with pytest.raises(InputError, match=r"column 'x' has numbers up to 1.7e\+308: too large to normalize"):
            feature_of(learn, [1.7e308, -1.7e308], normalize=normalize)


def test_a_vocabulary_without_its_strings_has_no_most_frequent_one(learn: Learn) -> None:
    with pytest.raises(InputError, match=r"column 'x' has no value of its vocabulary, .*; set impute to a value"):
        feature_of(learn, ["a", "b"], vocabulary=["c"], impute="most_frequent")


def test_an_input_without_records_teaches_nothing(learn: Learn) -> None:
    with pytest.raises(InputError, match="there are no records"):
        learn(pa.table({"x": pa.array([], pa.float64())}))


def test_label_weight_and_keys_are_no_features(learn: Learn) -> None:
    table = pa.table({"id": [1, 2], "x": [1.0, 2.0], "y": ["b", "a"], "w": [1, 2]})
    learned = learn(table, label=LabelOptions("y"), weight="w", keys=["id"])
    assert learned.raw_columns == (RawColumn("x", "float64"),)
    assert learned.keys == (RawColumn("id", "int64"),)
    assert learned.labels(table).tolist() == [1, 0]
    assert learned.weights(table).tolist() == [1, 2]
    assert (learned.num_records, list(learned.apply(table))) == (2, ["x"])


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"label": LabelOptions("z")}, "there is no column 'z'"),
        ({"weight": "y"}, "the weight 'y' is string, expected numbers"),
        (
            {"label": LabelOptions("y"), "keys": ["y"]},
            "column 'y' is named 2 times: expected it to be only one of label, weight and",
        ),
        ({"keys": ["x", "y"]}, "there is no column for a feature"),
    ],
)
def test_wrong_names_are_refused(arguments: dict[str, Any], fault: str) -> None:
    columns = [RawColumn("x", "int64"), RawColumn("y", "string")]
    with pytest.raises(UsageError, match=fault):
        Learner(columns, {}, {}, 1, **arguments)


def test_weights_that_are_all_0_are_refused(learn: Learn) -> None:
    table = pa.table({"x": [1, 2], "w": [0, 0]})
    with pytest.raises(UsageError, match="all weights in column 'w' are 0: expected at least one above 0"):
        learn(table, weight="w")


def test_a_name_that_is_there_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="column 'x' occurs 2 times"):
        Learner([RawColumn("x", "int64"), RawColumn("x", "string")], {}, {}, 1)


def test_all_that_is_wrong_is_reported_before_anything_is_learned() -> None:
    columns = [RawColumn("x", "int64"), RawColumn("y", "date"), RawColumn("w", "bool"), RawColumn("z", "string")]
    with pytest.raises(UsageError) as caught:
        Learner(columns, {"x": ColumnOptions(embedding=1)}, {}, 1, label=LabelOptions("y"), weight="w")
    assert [fault.partition(",")[0] for fault in caught.value.faults] == [
        "the weight 'w' is bool",
        "column 'x' (int64): an embedding needs ids; set vocabulary",
        "the label 'y' is date",
    ]
    with pytest.raises(UsageError, match="group 'g' has 'z', which is not one number"):
        Learner(columns[::3], {}, {"g": ["x", "z"]}, 1)


def test_the_only_option_of_a_label_is_the_type_that_it_was_read_as() -> None:
    columns, label = [RawColumn("x", "float64"), RawColumn("y", "string")], LabelOptions("y")
    Learner(columns, {"y": ColumnOptions(type="string")}, {}, 1, label=label)
    for options in (ColumnOptions(type="int64"), ColumnOptions(type="string", impute="a"), ColumnOptions()):
        with pytest.raises(UsageError, match="columns has options for 'y', which is not a feature column"):
            Learner(columns, {"y": options}, {}, 1, label=label)
