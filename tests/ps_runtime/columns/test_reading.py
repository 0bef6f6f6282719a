from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psflow.ps_runtime.columns.raw import TYPES, RawColumn
from psflow.ps_runtime.columns.reading import NUMBERS, Column, raw_type_of, read_column, read_columns, split_type
from psflow.ps_runtime.columns.values import array_of, missing_rows, numbers_of, unique_strings
from psflow.ps_runtime.errors import CellError, InputError

DAY = datetime.date(2020, 1, 2)
TIME = datetime.datetime(2020, 1, 2, 12, 0, 0, 5)


def column(raw_type: str, read_as: str | None = None) -> Column:
    return Column(RawColumn("x", raw_type), read_as or raw_type)


def read(values: list[Any], arrow_type: pa.DataType, read_as: str) -> pa.Array:
    return read_column(pa.table({"x": pa.array(values, arrow_type)}), column(raw_type_of(arrow_type), read_as))


def test_types_have_names() -> None:
    arrow_types = [pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us")]
    assert tuple(map(raw_type_of, arrow_types)) == TYPES
    assert raw_type_of(pa.list_(pa.float32(), 64)) == "float32[64]"
    assert raw_type_of(pa.uint8()) == "uint8"
    assert split_type("int64[8]") == ("int64", 8)


@pytest.mark.parametrize(
    ("values", "arrow_type", "read_as", "expected"),
    [
        (["1", None, "2.5"], pa.string(), "float64", [1.0, None, 2.5]),
        (["1", "-2"], pa.string(), "int64", [1, -2]),
        ([1.0, None, float("nan"), 3.0], pa.float64(), "int64", [1, None, None, 3]),
        ([True, None], pa.bool_(), "int64", [1, None]),
        ([1, None], pa.int64(), "string", ["1", None]),
        ([2.0, None], pa.float32(), "string", ["2", None]),
        ([True, False], pa.bool_(), "string", ["true", "false"]),
        ([DAY], pa.date32(), "string", ["2020-01-02"]),
        ([TIME], pa.timestamp("us"), "string", ["2020-01-02T12:00:00.000005"]),
        ([TIME], pa.timestamp("us"), "date", [DAY]),
        (["2020-01-02"], pa.string(), "date", [DAY]),
        (["2020-01-02T12:00:00.000005"], pa.string(), "timestamp", [TIME]),
        (["true", "False", None], pa.string(), "bool", [True, False, None]),
        ([1, 2], pa.int64(), "float64", [1, 2]),
    ],
)
def test_values_are_converted(values: list[Any], arrow_type: pa.DataType, read_as: str, expected: list[Any]) -> None:
    assert read(values, arrow_type, read_as).to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "arrow_type", "read_as", "reason"),
    [
        (["1", "2", "x", "y"], pa.string(), "float64", "row 2 .*: expected a number, got 'x'"),
        (["1", "2.5"], pa.string(), "int64", "row 1 .*: expected a whole number, got '2.5'"),
        ([1.0, None, 0.5], pa.float64(), "int64", "row 2 .*: expected a whole number, got 0.5"),
        ([1.0, float("inf")], pa.float64(), "string", "row 1 .*: expected a whole number, got inf"),
        (["2020-02-30"], pa.string(), "date", "row 0 .*: expected a day such as 2026-01-31, got '2020-02-30'"),
        (["2020-01-01T00:00:00Z"], pa.string(), "timestamp", "expected a time such as .*, without a zone"),
        (["yes"], pa.string(), "bool", "expected true or false, got 'yes'"),
        (["9" * 100], pa.string(), "int64", "got '9{59}\\.\\.\\."),
    ],
)
def test_a_value_that_is_none_is_named_with_its_row(
    values: list[Any], arrow_type: pa.DataType, read_as: str, reason: str
) -> None:
    with pytest.raises(CellError, match=reason) as caught:
        read(values, arrow_type, read_as)
    assert caught.value.column == "x"


@pytest.mark.parametrize("row", [0, 1, 511, 512, 998, 999])
def test_the_first_of_several_bad_rows_is_named(row: int) -> None:
    values = ["1"] * row + ["bad"] + ["worse"] * (999 - row)
    with pytest.raises(CellError, match="got 'bad'") as caught:
        read(values, pa.string(), "float64")
    assert caught.value.row == row


@pytest.mark.parametrize(
    ("got", "learned", "fits"),
    [
        (pa.int64(), "float64", True),
        (pa.float32(), "int64", True),
        (pa.string(), "float64", False),
        (pa.int64(), "string", False),
        (pa.bool_(), "int64", False),
        (pa.date32(), "timestamp", False),
        (pa.list_(pa.int64(), 3), "float32[3]", True),
        (pa.list_(pa.float32(), 4), "float32[3]", False),
        (pa.float32(), "float32[3]", False),
        (pa.uint8(), "int64", False),
    ],
)
def test_a_number_may_come_for_a_number_and_nothing_else(got: pa.DataType, learned: str, fits: bool) -> None:
    value = [1] * got.list_size if pa.types.is_fixed_size_list(got) else DAY if pa.types.is_date(got) else 1
    table = pa.table({"x": pa.array([value]).cast(got)})
    if fits:
        assert len(read_column(table, column(learned))) == 1
    else:
        with pytest.raises(InputError, match=r"column 'x' is .*, expected .* as in training"):
            read_column(table, column(learned))


@pytest.mark.parametrize("learned", [*TYPES, "float32[3]"])
@pytest.mark.parametrize("values", [pa.nulls(2, pa.string()), pa.array([None, float("nan")])])
def test_only_missing_values_fits_every_type(learned: str, values: pa.Array) -> None:
    array = read_column(pa.table({"x": values}), column(learned))
    assert missing_rows(array).tolist() == [True, True]
    assert raw_type_of(array.type) == learned or learned in NUMBERS


def test_all_columns_that_do_not_fit_are_named_together() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([1]), pa.array(["a"])], names=["twice", "twice", "word"])
    wanted = [RawColumn("twice", "int64"), RawColumn("words", "string"), RawColumn("word", "int64")]
    with pytest.raises(InputError) as caught:
        read_columns(table, [Column(raw, raw.type) for raw in wanted])
    assert caught.value.faults == (
        "column 'twice' occurs 2 times, expected once",
        "column 'words' (string) is missing; did you mean 'word'?",
        "column 'word' is string, expected int64 as in training",
    )


def test_numbers_are_numpy_with_nan_for_missing_values() -> None:
    np.testing.assert_array_equal(numbers_of(pa.array([1, None])), [1, np.nan])
    np.testing.assert_array_equal(numbers_of(pa.array([True, False, None])), [1, 0, np.nan])
    np.testing.assert_array_equal(numbers_of(pa.array([DAY, None])), [18263, np.nan])
    np.testing.assert_array_equal(numbers_of(pa.array([datetime.datetime(1969, 12, 31, 18), None])), [-0.25, np.nan])
    assert numbers_of(pa.array([1, 2])).dtype == np.int64


def test_arrays_keep_their_rows_when_they_are_sliced_and_missing() -> None:
    array = pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int64(), 2))
    expected = np.array([[1, 2], [np.nan, np.nan], [3, np.nan], [5, 6]], np.float32)
    np.testing.assert_array_equal(array_of(array), expected)
    np.testing.assert_array_equal(array_of(array[1:3]), expected[1:3])
    assert array_of(array[:0]).shape == (0, 2)
    assert missing_rows(array).tolist() == [False, True, True, False]


def test_nan_and_null_are_missing_alike() -> None:
    assert missing_rows(pa.array([1.0, None, float("nan")])).tolist() == [False, True, True]
    assert missing_rows(pa.array(["", None])).tolist() == [False, True]


def test_strings_come_once_with_their_places() -> None:
    words, places = unique_strings(pa.array([2.0, None, float("nan"), 7.0, 2.0]), "x")
    assert words.to_pylist() == ["2", "7"]
    assert places.to_pylist() == [0, None, None, 1, 0]
    with pytest.raises(CellError, match=r"column 'x', row 1 .*: expected a whole number, got 2.5"):
        unique_strings(pa.array([1.0, 2.5]), "x")
