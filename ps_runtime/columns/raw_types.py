"""Maps raw column types to pyarrow types and back, and casts values between them."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from psflow.ps_runtime.columns.raw import TYPES

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = ("int64", "float32", "float64")
"""Each holds the values of those before it, up to a size that a cast checks."""
ARRAY = re.compile(r"(\w+)\[(\d{1,9})\]")
LISTS = tuple(f"{element}[]" for element in (*NUMBERS, "string"))
LIST = "list"
"""Lists without any value, whose element type is unknown."""


def is_raw_type(text: str) -> bool:
    """Return whether a text is a raw column type: a scalar type, numbers with a length above 0, or lists.

    Examples
    --------
    >>> is_raw_type("date"), is_raw_type("float32[64]"), is_raw_type("string[2]"), is_raw_type("list<int64>")
    (True, True, False, False)
    >>> is_raw_type("string[]"), is_raw_type("bool[]")
    (True, False)
    """
    return text in (*TYPES, *LISTS) or _length_of(text) > 0


def _length_of(text: str) -> int:
    match = ARRAY.fullmatch(text)
    return int(match[2]) if match is not None and match[1] in NUMBERS else 0


def _element_of(text: str) -> str:
    return text.partition("[")[0]


@functools.cache
def arrow_type(raw: str) -> pa.DataType:
    """Return the pyarrow type of a raw column."""
    import pyarrow as pa

    if raw in LISTS:
        return pa.list_(arrow_type(_element_of(raw)))
    if length := _length_of(raw):
        return pa.list_(arrow_type(_element_of(raw)), length)
    return {
        "int64": pa.int64(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "string": pa.string(),
        "bool": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
    }[raw]


def raw_type(stored: pa.DataType) -> str:
    """Return the raw type of a stored column, or the text of its type if it has none.

    Integers of any size are int64, half floats float32, decimals float64, dictionaries the type of their values, and
    times of any unit and zone timestamp. A column of only nulls is float64, and one of lists without a value is `LIST`.
    """
    import pyarrow.types as kinds

    if kinds.is_dictionary(stored):
        return raw_type(stored.value_type)
    if kinds.is_list(stored) or kinds.is_large_list(stored):
        if kinds.is_null(stored.value_type):
            return LIST
        element = raw_type(stored.value_type)
        return f"{element}[]" if f"{element}[]" in LISTS else str(stored)
    if kinds.is_fixed_size_list(stored):
        element = raw_type(stored.value_type)
        return f"{element}[{stored.list_size}]" if element in NUMBERS and stored.list_size else str(stored)
    for is_kind, raw in (
        (kinds.is_integer, "int64"),
        (kinds.is_float64, "float64"),
        (kinds.is_floating, "float32"),
        (kinds.is_decimal, "float64"),
        (kinds.is_null, "float64"),
        (kinds.is_boolean, "bool"),
        (kinds.is_string, "string"),
        (kinds.is_large_string, "string"),
        (kinds.is_string_view, "string"),
        (kinds.is_date, "date"),
        (kinds.is_timestamp, "timestamp"),
    ):
        if is_kind(stored):
            return raw
    return str(stored)


def is_stored_as(stored: pa.DataType, raw: str) -> bool:
    """Return whether a stored column may be read as an inferred raw type without loss."""
    import pyarrow.types as kinds

    found = raw_type(stored)
    if raw in LISTS:
        found = as_list(found, raw)
    if found == raw or kinds.is_null(stored):
        return True
    numbers = _element_of(found) in NUMBERS and _element_of(raw) in NUMBERS
    numbers = numbers and found.partition("[")[1:] == raw.partition("[")[1:]
    return numbers and NUMBERS.index(_element_of(found)) < NUMBERS.index(_element_of(raw))


def as_list(found: str, expected: str) -> str:
    """Return the type of a column of lists; those found may lack values, or have one length by chance.

    Examples
    --------
    >>> as_list("list", "string[]"), as_list("int64[2]", "float64[]"), as_list("bool", "string[]")
    ('string[]', 'int64[]', 'bool')
    """
    if found == LIST:
        return expected
    return f"{_element_of(found)}[]" if expected in LISTS and _length_of(found) else found


def wider_type(raw: str) -> str | None:
    """Return the type that a column of numbers widens to if a value does not fit, or None.

    Examples
    --------
    >>> wider_type("int64"), wider_type("float32[3]"), wider_type("float64"), wider_type("string")
    ('float64', 'float64[3]', None, None)
    """
    element = _element_of(raw)
    return raw.replace(element, "float64") if element in ("int64", "float32") else None


def cast_values(values: pa.ChunkedArray, raw: str) -> pa.ChunkedArray:
    """Return values as a raw type; nulls stay.

    Raises
    ------
    pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError
        If a value does not fit: a fraction as an integer, a number that a float does not hold exactly, another length.

    Notes
    -----
    Times are in UTC, truncated to microseconds.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    target = arrow_type(raw)
    if kinds.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if raw == "timestamp" and kinds.is_timestamp(values.type) and values.type.unit == "ns":
        values = pc.floor_temporal(values.cast(pa.timestamp("ns")), unit="microsecond")
    return values if values.type == target else values.cast(target)


def first_fault(length: int, attempt: Callable[[int], object]) -> int:
    """Return the index of the first fault among `length` items, by attempts with the first ``n`` of them."""
    import pyarrow as pa

    def fails(num_first: int) -> bool:
        try:
            attempt(num_first)
        except pa.ArrowException:
            return True
        return False

    return bisect_left(range(1, length + 1), True, key=fails)


def faults_in(start: int, stop: int, attempt: Callable[[int, int], object]) -> Iterator[int]:
    """Yield the indices of the failing items of ``[start, stop)`` in order; runs of items are tried at once."""
    import pyarrow as pa

    try:
        attempt(start, stop)
    except pa.ArrowException:
        if stop - start == 1:
            yield start
            return
        middle = (start + stop) // 2
        yield from faults_in(start, middle, attempt)
        yield from faults_in(middle, stop, attempt)
