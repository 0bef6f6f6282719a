from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.columns.intents import Becomes, Intent, intend
from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.errors import UsageError


def intent(raw_type: str, **options: Any) -> Intent:
    [made] = intend([RawColumn("x", raw_type)], {"x": ColumnOptions(**options)})
    return made


@pytest.mark.parametrize(
    ("raw_type", "options", "becomes", "read_as"),
    [
        ("int64", {}, Becomes.NUMBER, "float64"),
        ("float64", {}, Becomes.NUMBER, "float64"),
        ("float32[8]", {}, Becomes.ARRAY, "float32[8]"),
        ("bool[3]", {}, Becomes.ARRAY, "bool[3]"),
        ("string", {}, Becomes.VOCABULARY_IDS, "string"),
        ("bool", {}, Becomes.VOCABULARY_IDS, "bool"),
        ("bool", {"type": "number"}, Becomes.NUMBER, "bool"),
        ("string", {"type": "number"}, Becomes.NUMBER, "float64"),
        ("string", {"type": "int64", "embedding": 4, "hash_buckets": 9}, Becomes.HASH_IDS, "int64"),
        ("int64", {"type": "string"}, Becomes.VOCABULARY_IDS, "string"),
        ("float64", {"type": "int64"}, Becomes.NUMBER, "int64"),
        ("int64", {"vocabulary": "auto"}, Becomes.VOCABULARY_IDS, "float64"),
        ("int64", {"buckets": [1]}, Becomes.BUCKET_IDS, "float64"),
        ("date", {"type": "number"}, Becomes.NUMBER, "date"),
        ("date", {"normalize": "standard"}, Becomes.NUMBER, "date"),
        ("timestamp", {"buckets": "quantiles"}, Becomes.BUCKET_IDS, "timestamp"),
        ("timestamp", {"type": "string"}, Becomes.VOCABULARY_IDS, "string"),
        ("date", {"hash_buckets": 5}, Becomes.HASH_IDS, "date"),
        ("int64", {"num_ids": 5, "embedding": 2}, Becomes.IDENTITY_IDS, "float64"),
        ("string", {"num_ids": 5, "type": "number"}, Becomes.IDENTITY_IDS, "float64"),
        ("string", {"type": "date", "normalize": "min_max"}, Becomes.NUMBER, "date"),
        ("string", {"type": "bool"}, Becomes.VOCABULARY_IDS, "bool"),
    ],
)
def test_type_and_options_say_what_a_column_becomes(
    raw_type: str, options: dict[str, Any], becomes: Becomes, read_as: str
) -> None:
    made = intent(raw_type, **options)
    assert (made.becomes, made.read_as) == (becomes, read_as)


@pytest.mark.parametrize(
    ("raw_type", "options", "fault"),
    [
        ("string", {"normalize": "standard"}, "normalize is for numbers; set type: number"),
        ("bool", {"buckets": [1]}, "buckets are for numbers"),
        ("string", {"impute": "mean"}, "impute: mean is for numbers; use most_frequent or a string"),
        ("int64", {"type": "string", "impute": "median"}, "impute: median is for numbers"),
        ("string", {"impute": 0.5}, "impute is 0.5, expected a string or a whole number"),
        ("int64", {"impute": "none"}, "impute is 'none', expected mean, median, most_frequent or a number"),
        ("int64", {"impute": True}, "impute is True, expected mean, median, most_frequent or a number"),
        ("string", {"num_ids": 8}, "num_ids is for whole numbers; set vocabulary or hash_buckets, or type: number"),
        ("date", {"num_ids": 8}, "num_ids is for whole numbers"),
        ("int64", {"embedding": 8}, "an embedding needs ids; set vocabulary, hash_buckets, num_ids or buckets too"),
        (
            "int64",
            {"expire_after_steps": 8},
            "expire_after_steps 8 applies to rows of ids; set vocabulary, hash_buckets",
        ),
        ("float32[4]", {"admit_after": 2}, "admit_after cannot be set for a column of arrays"),
        ("date", {}, "dates need a type"),
        ("timestamp", {"impute": "mean"}, "dates need a type"),
        ("string", {"type": "timestamp"}, "dates need a type"),
        ("int64", {"type": "date"}, "cannot be read as date, expected one of date, timestamp, string"),
        ("date", {"type": "bool"}, "cannot be read as bool"),
        ("float32[4]", {"indicator": True}, "indicator cannot be set for a column of arrays"),
        ("string[4]", {}, "only arrays of numbers or booleans can be features"),
        ("struct<a: int64>", {}, "the type struct<a: int64> cannot be read: expected one of int64"),
        ("float32[0]", {}, r"the type float32\[0\] cannot be read"),
    ],
)
def test_what_a_type_does_not_allow_is_refused(raw_type: str, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=r"column 'x' \(.*\): .*" + fault):
        intent(raw_type, **options)


def test_all_columns_are_judged_together() -> None:
    columns = [RawColumn("age", "int64"), RawColumn("born", "date"), RawColumn("name", "string")]
    options = {"aeg": ColumnOptions(), "name": ColumnOptions(normalize="standard")}
    with pytest.raises(UsageError) as caught:
        intend(columns, options)
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        "columns has options for 'aeg', which is not a feature column; did you mean 'age'?",
        "column 'born' (date)",
        "column 'name' (string)",
    ]


@pytest.mark.parametrize("content", ["red\ngreen\n", "\ufeffred\ngreen", "red\r\ngreen\r\n"])
def test_a_vocabulary_is_read_from_its_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content.encode())
    assert intent("string", vocabulary=str(path)).vocabulary == ("red", "green")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"red\n\ngreen\n", "has an empty line 2"),
        (b"", "has an empty line 1"),
        (b"red\nred\n", "has 'red' twice"),
        (b"caf\xe9\n", "cannot be read .*utf-8"),
        (b"blue\n", "impute is 'red', which is not in the vocabulary"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=fault):
        intent("string", vocabulary=str(path), impute="red")


def test_a_vocabulary_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the vocabulary 'Auto' cannot be read .*expected auto or a local file"):
        intent("string", vocabulary="Auto")
