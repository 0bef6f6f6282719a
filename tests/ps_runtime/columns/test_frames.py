from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from psflow.ps_runtime.columns.frames import table_of
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.errors import InputError

DAY = datetime.date(2026, 1, 31)
NOON = datetime.datetime(2026, 1, 31, 12)
NA = ("?",)


def read(values: Any, raw: str, na_values: tuple[str, ...] | None = None) -> list[Any]:
    found: list[Any] = table_of({"a": values}, [RawColumn("a", raw)], na_values)["a"].to_pylist()
    return found


@pytest.mark.parametrize(
    ("values", "raw", "expected"),
    [
        ([1, None], "int64", [1, None]),
        (pd.Series([1, None], dtype="Int64"), "int64", [1, None]),
        (np.array([1, np.nan]), "int64", [1, None]),
        ([26.5], "int64", [26.5]),
        (np.array([3], np.uint8), "float64", [3]),
        (["1", None], "int64", [1, None]),
        (["x", None], "string", ["x", None]),
        (pd.Series(["x", None, "x"], dtype="category"), "string", ["x", None, "x"]),
        ([None, None], "string", [None, None]),
        ([np.nan, np.nan], "date", [None, None]),
        ([True, None, False], "bool", [True, None, False]),
        (["true", "False", "1"], "bool", [True, False, True]),
        ([DAY, None], "date", [DAY, None]),
        (["2026-01-31"], "date", [DAY]),
        ([NOON], "date", [DAY]),
        (pd.Series([pd.Timestamp(DAY)]), "date", [DAY]),
        (pd.Series([pd.Timestamp(NOON), None]), "timestamp", [NOON, None]),
        (["2026-01-31 12:00:00", "2026-01-31T12:00"], "timestamp", [NOON, NOON]),
        ([[1, 2], [3.5, 4]], "float32[2]", [[1, 2], [3.5, 4]]),
        (np.array([[1, 2], [3, 4]]), "int64[2]", [[1, 2], [3, 4]]),
    ],
)
def test_values_of_the_kind_of_the_column_are_taken(values: Any, raw: str, expected: list[Any]) -> None:
    assert read(values, raw) == expected


def test_strings_are_as_in_delimited_text_where_the_model_has_learned_from_that() -> None:
    assert read([" x ", "?", "", None], "string", NA) == ["x", None, None, None]
    assert read(["7", "?"], "int64", NA) == [7, None]
    assert read(["?", ""], "string") == ["?", ""]


@pytest.mark.parametrize(
    ("values", "raw", "fault"),
    [
        ([None, 5], "string", "row 1 .*: expected text, got 5"),
        ([501], "string", "expected text, got 501"),
        ([1], "bool", "expected true or false, got 1"),
        (["no"], "bool", "expected true or false, got 'no'"),
        ([True], "int64", "expected a whole number, got True"),
        ([20260131], "date", "expected a day such as 2026-01-31, got 20260131"),
        ([45000], "timestamp", "expected a time such as .*, got 45000"),
        ([NOON], "float64", r"expected a number, got datetime\.datetime"),
        (["1", "many"], "int64", "row 1 .*: expected a whole number, got 'many'"),
        (["x" * 100], "float32", "expected a number, got 'x{59}"),
        ([1, "x"], "int64", "expected values of one type, and null for missing ones: "),
        ([{"b": 1}], "string", "expected text, got {'b': 1}"),
        ([[1, 2, 3]], "float32[2]", r"expected float32\[2\], got \[1, 2, 3\]"),
    ],
)
def test_values_of_another_kind_are_refused(values: Any, raw: str, fault: str) -> None:
    with pytest.raises(InputError, match=f"^column 'a'.*{fault}"):
        read(values, raw)


def test_all_columns_that_are_wrong_are_reported_and_what_is_missing_is_left_out() -> None:
    columns = [RawColumn(name, "int64") for name in "abc"]
    with pytest.raises(InputError) as caught:
        table_of({"a": ["x"], "b": [1], "c": ["y"]}, columns)
    assert len(caught.value.faults) == 2
    assert table_of({"b": [1], "d": [object()]}, columns).column_names == ["b"]
