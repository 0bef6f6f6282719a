"""Arrays of Python objects, converted to numbers, booleans or texts, or refused with the fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

from psflow.ps_runtime.data.arrays import plain_arrays
from psflow.ps_runtime.data.object_arrays import plain_objects
from psflow.ps_runtime.errors import InputError


def objects(*values: Any) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (["a", np.str_("bcd")], "<U3"),
        (["", ""], "<U1"),
        ([True, np.False_], "|b1"),
        ([1, np.int32(2)], "<i8"),
        ([1, 2.5, float("nan")], "<f8"),
        ([2**60, 0.5, float("inf")], "<f8"),
        ([np.float32(1), np.float32(2)], "<f4"),
        ([2**63], "<u8"),
        ([], "<f8"),
    ],
)
def test_objects_of_one_kind_become_an_array_of_it(given: list[Any], dtype: str) -> None:
    array, fault = plain_objects(objects(*given), "x")
    assert fault == ""
    assert array is not None
    assert array.dtype.str == dtype
    np.testing.assert_array_equal(array, given)


def test_a_matrix_of_texts_keeps_its_shape() -> None:
    features, _ = plain_arrays(pandas.DataFrame({"a": ["x", "y", "z"], "b": ["u", "v", "w"]}), None)
    assert isinstance(features, np.ndarray)
    assert features.tolist() == [["x", "u"], ["y", "v"], ["z", "w"]]


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["a", None], "None in row 1: expected texts, as 'a' in row 0; fill it, or leave out its row"),
        (["a", float("nan")], "nan in row 1: expected texts, as 'a' in row 0; fill it, or leave out its row"),
        ([None, 1.5], "None in row 0: expected numbers, as 1.5 in row 1; fill it"),
        ([pandas.NA, True], "<NA> in row 0: expected booleans, as True in row 1; fill it"),
        ([pandas.NaT], "NaT in row 0: expected texts, booleans or numbers; fill it"),
        ([1, True], "True in row 1: expected numbers, as 1 in row 0; convert it first, "),
        ([True, 1], "1 in row 1: expected booleans, as True in row 0; convert it first, "),
        (["1", 2], r"2 in row 1: expected texts, as '1' in row 0; convert it first, .* \.astype\(str\)"),
        (["a" * 99, 2], "2 in row 1: expected texts, as 'a{39}\\.\\.\\. in row 0"),
        ([b"a"], "b'a' in row 0: expected texts, booleans or numbers; decode it"),
        ([[1], [2]], r"\[1\] in row 0: .*; make one array of all rows, as with numpy\.stack"),
        ([np.zeros(2)], r"array\(\[0\., 0\.\]\) in row 0: .*; make one array of all rows"),
        ([1, 2**63, -1], "integers that do not fit one dtype: expected numbers of int64"),
        ([2**70], "integers that do not fit one dtype"),
        ([0.5, 2**60 + 1], f"{2**60 + 1} in row 1, beside floats: float64 cannot hold this integer; round it"),
        ([0.5, np.int64(2**60 + 1)], r"np\.int64\(1152921504606846977\) in row 1, beside floats: float64"),
        (["a\0"], "a text that ends with a NUL character, which numpy would drop: remove it"),
    ],
)
def test_objects_of_other_kinds_are_refused(given: list[Any], fault: str) -> None:
    with pytest.raises(InputError, match=rf"^features\['x'\] has (dtype object, )?{fault}"):
        plain_arrays({"x": objects(*given)}, None)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (None, "None in row 0: expected texts, booleans or numbers; fill it"),
        (object, "<class 'object'> in row 0: expected texts, booleans or numbers; convert it first"),
    ],
)
def test_a_scalar_is_one_row(given: Any, fault: str) -> None:
    with pytest.raises(InputError, match=rf"^features\['x'\] has dtype object, {fault}"):
        plain_arrays({"x": given}, None)
    features, _ = plain_arrays({"x": np.array("a", object)}, None)
    assert isinstance(features, dict)
    assert features["x"].tolist() == ["a"]


def test_a_table_of_several_kinds_is_to_be_given_by_name() -> None:
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    with pytest.raises(InputError, match=r"'x' in row 0, column 1: .* by name, as dict\(\.\.\.\) of a DataFrame"):
        plain_arrays(frame, None)
