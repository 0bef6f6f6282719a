from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psflow.ps_runtime.columns.example import example_record
from psflow.ps_runtime.columns.frames import table_of
from psflow.ps_runtime.columns.options import ColumnOptions, Quantiles
from psflow.ps_runtime.columns.preprocessing import Preprocessing

Learn = Callable[..., Preprocessing]

DAYS = [datetime.date(1970, 1, 1), datetime.date(1970, 1, 3)]
VALUES: dict[str, pa.Array] = {
    "int64": pa.array([10, 20]),
    "float64": pa.array([0.5, 2.5]),
    "string": pa.array(["x", "x"]),
    "digits": pa.array(["10", "20"]),
    "bool": pa.array([True, True]),
    "date": pa.array(DAYS),
    "timestamp": pa.array(DAYS).cast(pa.timestamp("us")),
    "array": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
}


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("int64", {}, 1),
        ("int64", {"normalize": "standard"}, 15),
        ("int64", {"normalize": "min_max", "impute": 12.4}, 12),
        ("int64", {"vocabulary": "auto"}, 10),
        ("int64", {"hash_buckets": 9}, 1),
        ("int64", {"num_ids": 99}, 0),
        ("int64", {"buckets": [11, 12, 13]}, 12),
        ("float64", {}, 1.0),
        ("float64", {"impute": "median"}, 1.5),
        ("float64", {"normalize": "log1p"}, 1.0),
        ("float64", {"buckets": Quantiles(2)}, 1.5),
        ("string", {}, "x"),
        ("string", {"vocabulary": ["y", "z"]}, "y"),
        ("string", {"hash_buckets": 9}, "word"),
        ("string", {"hash_buckets": 9, "impute": "none"}, "none"),
        ("digits", {"type": "number"}, "1"),
        ("digits", {"type": "number", "normalize": "standard"}, "15"),
        ("bool", {}, True),
        ("bool", {"type": "number", "normalize": "standard"}, True),
        ("bool", {"type": "number", "impute": 0}, False),
        ("date", {"type": "number"}, "2026-01-31"),
        ("date", {"type": "number", "normalize": "standard"}, "1970-01-02"),
        ("date", {"type": "number", "impute": 1e12}, "2026-01-31"),
        ("date", {"vocabulary": "auto"}, "1970-01-01"),
        ("timestamp", {"type": "number", "impute": "mean", "indicator": True}, "1970-01-02"),
        ("timestamp", {"hash_buckets": 9}, "2026-01-31"),
        ("array", {}, [0.0, 0.0]),
    ],
)
def test_an_example_is_what_was_learned_and_can_be_predicted(
    learn: Learn, kind: str, options: dict[str, Any], expected: object
) -> None:
    preprocessing = learn(pa.table({"a": VALUES[kind]}), {"a": ColumnOptions(**options)} if options else {})
    example = example_record(preprocessing)
    assert example == {"a": expected}
    assert type(example["a"]) is type(expected)
    features = preprocessing.apply(table_of({"a": [example["a"]]}, preprocessing.raw_columns))
    assert all(np.isfinite(array).all() and len(array) == 1 for array in features.values())


def test_columns_of_groups_have_a_value_too(learn: Learn) -> None:
    table = pa.table({"a": [1.0, 3.0], "b": [2.0, 4.0]})
    preprocessing = learn(table, {"b": ColumnOptions(impute="mean", indicator=True)}, {"dense": "numeric"})
    assert example_record(preprocessing) == {"a": 1.0, "b": 3.0}
