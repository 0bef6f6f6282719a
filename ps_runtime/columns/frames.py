"""Converts columns given as arrays, such as those of a DataFrame, to a table for a preprocessing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from psflow.ps_runtime.columns.raw import RawColumn, is_list
from psflow.ps_runtime.columns.raw_types import LIST, arrow_type, cast_values, first_fault, raw_type
from psflow.ps_runtime.columns.reading import EXPECTED
from psflow.ps_runtime.errors import CellError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {
    "int64": "number",
    "float32": "number",
    "float64": "number",
    "string": "text",
    "bool": "boolean",
    "date": "time",
    "timestamp": "time",
}
"""Types whose values are interchangeable."""
MAX_SHOWN = 60


def table_of(
    given: Mapping[str, Any], columns: Sequence[RawColumn], na_values: Sequence[str] | None = None
) -> pa.Table:
    """Return the given ones of `columns`; None and NaN are missing values.

    Raises
    ------
    InputError
        Lists all columns that have a value of another type.
    """
    import pyarrow as pa

    arrays: dict[str, pa.ChunkedArray] = {}
    faults: list[str] = []
    for column in columns:
        if column.name not in given:
            continue
        try:
            values = _strings(_values(given[column.name], column.name), na_values)
            arrays[column.name] = _as_column(values, column)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(tuple(faults))
    return pa.table(arrays)


def _values(given: Any, name: str) -> pa.Array:
    """Return values as a pyarrow array; InputError if they are of several types."""
    import pyarrow as pa

    rows = list(given) if getattr(given, "ndim", 1) > 1 else given  # pyarrow takes no arrays of several dimensions
    try:
        values = pa.array(rows, from_pandas=True)
    except (pa.ArrowException, TypeError) as error:
        raise InputError(
            (f"column {name!r}: expected values of one type, and null for missing ones: {error}",)
        ) from None
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _strings(values: pa.Array, na_values: Sequence[str] | None) -> pa.Array:
    """Return strings as the reader of delimited text reads them if `na_values` are given; other values unchanged."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if na_values is None or raw_type(values.type) != "string":
        return values
    strings = pc.ascii_trim_whitespace(values.cast(pa.string()))
    missing = pc.is_in(strings, value_set=pa.array(["", *na_values], pa.string()))
    return pc.if_else(missing, pa.scalar(None, pa.string()), strings)


def _as_column(values: pa.Array, column: RawColumn) -> pa.ChunkedArray:
    """Return values as those of a column; numbers are unchanged if numbers are expected.

    Text is parsed. No other value is converted: 1 is not a boolean, and 2026 is not a date.

    Raises CellError for the first value of another type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found, wanted = raw_type(values.type), column.type
    kind, other = KINDS.get(wanted), KINDS.get(found)
    if (
        is_list(column)
        and found != LIST
        and KINDS.get(wanted.removesuffix("[]")) != KINDS.get(found.removesuffix("[]"))
    ):
        filled = pc.greater(pc.fill_null(pc.list_value_length(values), 0), 0) if pa.types.is_list(values.type) else None
        has_value = (values.is_valid() if filled is None else filled).to_numpy(zero_copy_only=False)
        if has_value.any():
            raise _fault(values, int(np.argmax(has_value)), column)
        return pa.chunked_array([pa.nulls(len(values), arrow_type(wanted))])
    chunked = pa.chunked_array([values])
    if kind is not None and other not in (kind, "text") and values.null_count < len(values):
        raise _fault(values, int(np.argmax(values.is_valid().to_numpy(zero_copy_only=False))), column)
    try:
        return cast_values(chunked, found if kind == other == "number" else wanted)
    except pa.ArrowException:
        raise _fault(
            values, first_fault(len(values), lambda n: cast_values(chunked.slice(0, n), wanted)), column
        ) from None


def _fault(values: pa.Array, row: int, column: RawColumn) -> CellError:
    got = repr(values[row].as_py())
    shown = got if len(got) <= MAX_SHOWN else got[:MAX_SHOWN] + "..."
    return CellError(column.name, row, f"expected {EXPECTED.get(column.type, column.type)}, got {shown}")
