"""Checks the columns of a pyarrow Table against the learned ones, and converts them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from psflow.ps_runtime.columns.lists import split_cells, values_of
from psflow.ps_runtime.columns.raw import TYPES, RawColumn
from psflow.ps_runtime.errors import CellError, InputError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

NUMBERS = ("int64", "float32", "float64")

EXPECTED = {
    "int64": "a whole number",
    "float32": "a number",
    "float64": "a number",
    "string": "text",
    "bool": "true or false",
    "date": "a day such as 2026-01-31",
    "timestamp": "a time such as 2026-01-31T23:59:00, without a zone",
}
"""Expected values in error messages, by the type of the column."""

ARRAY_TYPE = re.compile(rf"({'|'.join(TYPES)})\[([1-9][0-9]*)?\]")


@dataclass(frozen=True, slots=True)
class Column:
    """A column that is read, with its counts."""

    raw: RawColumn
    read_as: str
    num_missing: int = 0
    loses_digits: bool = False
    looks_like: str = ""
    separator: str | None = None

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.raw.name


def split_type(raw_type: str) -> tuple[str, int | None]:
    """Return the type of a value and the length of an array: None for one value in a record, 0 for lists of any length.

    Raises InputError if `raw_type` is not a type of a `RawColumn`.

    Examples
    --------
    >>> split_type("float32[64]"), split_type("string[]"), split_type("date")
    (('float32', 64), ('string', 0), ('date', None))
    """
    if raw_type in TYPES:
        return raw_type, None
    match = ARRAY_TYPE.fullmatch(raw_type)
    if match is None:
        raise InputError((f"the type {raw_type} cannot be read: expected one of {', '.join(TYPES)}, or float32[N]",))
    return match[1], int(match[2] or 0)


def raw_type_of(arrow_type: pa.DataType) -> str:
    """Return the raw type for an arrow type; an unsupported one gives its own name, such as ``uint8``."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(arrow_type):
        return f"{raw_type_of(arrow_type.value_type)}[{arrow_type.list_size}]"
    if pa.types.is_list(arrow_type):
        return f"{raw_type_of(arrow_type.value_type)}[]"
    return _names_of_types().get(arrow_type, str(arrow_type))


def read_columns(table: pa.Table, columns: Sequence[Column]) -> dict[str, pa.Array]:
    """Return the columns of `table` by name, converted.

    Raises
    ------
    InputError
        Lists all columns that are missing, duplicated, or of another type than in the training input.
    CellError
        If a value cannot be converted.
    """
    arrays: dict[str, pa.Array] = {}
    faults: list[str] = []
    for column in columns:
        try:
            arrays[column.name] = _column_of(table, column.raw)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(tuple(faults))
    return {column.name: _as_read(arrays[column.name], column) for column in columns}


def read_column(table: pa.Table, column: Column) -> pa.Array:
    """Return one column of `table`; see `read_columns`."""
    return _as_read(_column_of(table, column.raw), column)


def _as_read(array: pa.Array, column: Column) -> pa.Array:
    import pyarrow as pa

    of_each, is_list, _ = column.read_as.partition("[]")
    if not is_list:
        return convert(array, column.read_as, column.name)
    lists = array if column.separator is None else split_cells(array, column.separator)
    cells = values_of(lists)
    try:
        values = convert(cells.values, of_each, column.name)
    except CellError as error:
        raise CellError(column=column.name, row=int(cells.rows[error.row]), reason=error.reason) from None
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[0], np.cumsum(cells.lengths)]), pa.int32()), values)


def _column_of(table: pa.Table, raw: RawColumn) -> pa.Array:
    """Return a column whose type fits; a column of only missing values fits every type."""
    import pyarrow as pa
    from pyarrow import compute as pc

    found = table.schema.get_all_field_indices(raw.name)
    if not found:
        near = did_you_mean(raw.name, table.column_names)
        raise InputError((f"column {raw.name!r} ({raw.type}) is missing{near}",))
    if len(found) > 1:
        raise InputError((f"column {raw.name!r} occurs {len(found)} times, expected once",))
    column = table.column(found[0])
    if fits(raw_type_of(column.type), raw.type):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pc.all(pc.is_null(column, nan_is_null=True), min_count=0).as_py():
        scalar, length = split_type(raw.type)
        own = _arrow_types()[scalar] if length is None else pa.list_(_arrow_types()[scalar], length or -1)
        return pa.nulls(len(column), own)
    raise InputError((f"column {raw.name!r} is {raw_type_of(column.type)}, expected {raw.type} as in training",))


def fits(got: str, expected: str) -> bool:
    """Return whether values of one type are accepted for another: numbers for numbers."""
    if got == expected:
        return True
    scalar, _, length = expected.partition("[")
    got_scalar, _, got_length = got.partition("[")
    return scalar in NUMBERS and got_scalar in NUMBERS and length == got_length


def convert(array: pa.Array, to: str, column: str) -> pa.Array:
    """Return the values as those of the type `to`; nulls stay null.

    Numbers stay unchanged if `to` is a floating-point type; `numbers_of` makes dates and booleans numbers.
    Arrays stay unchanged.

    Raises CellError if a value cannot be converted, such as text that is not a number.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    source = raw_type_of(array.type)
    if source == to or pa.types.is_fixed_size_list(array.type):
        return array
    if to in ("float32", "float64") and source != "string":
        return array
    if to == "string" and source == "timestamp":
        return pc.replace_substring(array.cast(pa.string()), " ", "T")
    if source in ("float32", "float64"):
        whole = _cast(pc.if_else(pc.is_nan(array), None, array), pa.int64(), column, "a whole number")
        return whole if to == "int64" else convert(whole, to, column)
    return _cast(array, _arrow_types()[to], column, EXPECTED[to])


def _cast(array: pa.Array, to: pa.DataType, column: str, expected: str) -> pa.Array:
    import pyarrow as pa

    try:
        return array.cast(to)
    except pa.ArrowInvalid:
        row = first_row(array, lambda part: _can_cast(part, to))
        got = repr(array[row].as_py())
        reason = f"expected {expected}, got {got if len(got) <= 60 else got[:60] + '...'}"
    raise CellError(column=column, row=row, reason=reason)


def _can_cast(array: pa.Array, to: pa.DataType) -> bool:
    import pyarrow as pa

    try:
        array.cast(to)
    except pa.ArrowInvalid:
        return False
    return True


def first_row(array: pa.Array, is_good: Callable[[pa.Array], bool]) -> int:
    """Return the first row that is not good, by bisection; there is at least one."""
    low, high = 0, len(array)  # rows before low are good, low:high is not
    while high - low > 1:
        middle = (low + high) // 2
        if is_good(array.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    return low


@functools.cache
def _arrow_types() -> dict[str, pa.DataType]:
    import pyarrow as pa

    return {
        "int64": pa.int64(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "string": pa.string(),
        "bool": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
    }


@functools.cache
def _names_of_types() -> dict[pa.DataType, str]:
    return {arrow_type: name for name, arrow_type in _arrow_types().items()}
