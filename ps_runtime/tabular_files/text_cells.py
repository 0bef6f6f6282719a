"""Parses cells of text: strips spaces, reads missing values as nulls, and infers the common type."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from psflow.ps_runtime.columns.raw_types import arrow_type, faults_in, first_fault
from psflow.ps_runtime.tabular_files.base import LARGEST_EXACT, InvalidValues, OnInvalid, RecordError

if TYPE_CHECKING:
    import pyarrow as pa

TRUE = ("true", "True", "TRUE", "1")
FALSE = ("false", "False", "FALSE", "0")

INFERRED = ("int64", "float64", "bool", "date", "timestamp")
"""The types that are tried, in this order; cells of none of these are strings."""
FLOAT = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?i:e[+-]?[0-9]+)?$|^[+-]?(?i:inf|nan)"
DAY = r"^[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
LOOK = {
    "int64": r"^[+-]?[0-9]+$",
    "float32": FLOAT,
    "float64": FLOAT,
    "bool": r"^(?:true|True|TRUE|false|False|FALSE|[01])$",
    "date": f"{DAY}$",
    "timestamp": f"{DAY}(?:[ T].*)?$",
}
"""Patterns of the cells that may be of a type: others are invalid without a try."""
MIXED = ("float64", "timestamp", "bool")
"""The types that most cells may have while others are invalid; whole numbers are numbers, and dates are times."""
MAX_SHOWN = 40
"""Characters of a cell in messages."""
HEX = r"0[xX]"
"""Pyarrow reads this as the beginning of a whole number, but not of one with a fraction."""
LONG = r"^[+-]?[0-9]{16,}$"
"""Whole numbers that may lose digits as a float64."""
ZONED = r"[ T][0-9]{2}.*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
FINER = r"(\.[0-9]{6})[0-9]+"

EXPECTED = {
    "int64": "a whole number (int64)",
    "float32": "a number",
    "float64": "a number",
    "string": "text",
    "bool": "true or false",
    "date": "a date (YYYY-MM-DD)",
    "timestamp": "a time (YYYY-MM-DD HH:MM:SS)",
}


def value_fault(
    column: str, raw: str, got: str, record: int, advice: str | None = None, *, widens: bool = False
) -> RecordError:
    """Return the fault of a value that does not have the type of its column, with advice."""
    what = f"column {column!r} expects {EXPECTED.get(raw, raw)}, got {got}"
    if advice is None:
        is_cell = raw in EXPECTED
        advice = f"if the value is right, train with columns.{column}.type: string" if is_cell else "correct the value"
    return RecordError(f"{what}; {advice}", record, column, widens)


def stripped(cells: pa.ChunkedArray, na_values: Sequence[str]) -> pa.ChunkedArray:
    """Return text without surrounding white space; `na_values` become null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    bare = pc.ascii_trim_whitespace(cells)
    if pc.sum(pc.binary_length(bare)) == pc.sum(pc.binary_length(cells)):
        return cells
    return pc.if_else(pc.is_in(bare, value_set=pa.array(na_values, pa.string())), None, bare)


def inferred_type(cells: pa.ChunkedArray) -> str:
    """Return the type of stripped cells: int64, float64, bool, date, timestamp or string; float64 if all are null.

    It is that of most cells if at most one in ten differs: these are then invalid, not strings.
    """
    import pyarrow as pa

    cells = cells.drop_null()
    if not len(cells):
        return "float64"
    for raw in INFERRED:
        try:
            _parse(cells, raw)
        except pa.ArrowInvalid:
            continue
        if raw == "float64" and _loses_digits(cells):
            return "string"  # the column holds names or codes
        return raw
    return _type_of_most(cells)


def most_invalid(num_values: int) -> int:
    """Return how many values of a column may be invalid: if there are more, the column has another type.

    Examples
    --------
    >>> most_invalid(601), most_invalid(9)
    (60, 0)
    """
    return num_values // 10


def _type_of_most(cells: pa.ChunkedArray) -> str:
    """Return the type of all but a few cells; string if there is none."""
    import pyarrow.compute as pc

    most = most_invalid(len(cells))
    for raw in MIXED:
        invalid = _invalid(cells, raw, most)
        if pc.sum(invalid).as_py() <= most:
            return inferred_type(cells.filter(pc.invert(invalid)))
    return "string"


def _invalid(cells: pa.ChunkedArray, raw: str, most: int | None = None) -> pa.ChunkedArray:
    """Return which cells are not values of a type; if there are more than `most`, possibly not all of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    invalid = pc.fill_null(pc.invert(pc.match_substring_regex(cells, LOOK[raw])), fill_value=False)
    if most is not None and pc.sum(invalid).as_py() > most:
        return invalid
    others = pa.chunked_array([pc.unique(cells.filter(pc.invert(invalid)))])
    faults = faults_in(0, len(others), lambda start, stop: _parse(others.slice(start, stop - start), raw))
    wrong = [others[place].as_py() for place in islice(faults, None if most is None else most + 1)]
    return pc.or_(invalid, pc.is_in(cells, value_set=pa.array(wrong, pa.string())))


def _loses_digits(cells: pa.ChunkedArray) -> bool:
    """Return whether some cells contain a whole number that a float64 may not hold."""
    import pyarrow.compute as pc

    long = cells.filter(pc.match_substring_regex(cells, LONG))
    return any(
        Decimal(cell).copy_abs() > LARGEST_EXACT for cell in long.to_pylist()
    )  # int() is limited to 4,300 digits


def parse_cells(cells: pa.ChunkedArray, raw: str, column: str, on_invalid: OnInvalid | None = None) -> pa.ChunkedArray:
    """Return stripped cells as values of a scalar type; nulls, and cells that `on_invalid` receives, are null.

    Raises RecordError for the first cell that is not such a value, without an `on_invalid`, or if it is a number for
    which the column has to widen.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return _parse(cells, raw)
    except pa.ArrowInvalid:
        pass
    if on_invalid is None:
        row = first_fault(len(cells), lambda n: _parse(cells.slice(0, n), raw))
        raise _cell_fault(cells, raw, column, row)
    invalid = _invalid(cells, raw)
    rows = pc.indices_nonzero(invalid).to_numpy().astype(np.int64)
    if raw == "int64":
        for row in pc.indices_nonzero(pc.and_(invalid, pc.match_substring_regex(cells, FLOAT))).to_pylist():
            if (fault := _cell_fault(cells, raw, column, row)).widens:
                raise fault
    on_invalid(InvalidValues(column, rows, tuple(repr(cells[int(row)].as_py()[:MAX_SHOWN]) for row in rows)))
    return _parse(pc.if_else(invalid, None, cells), raw)


def _cell_fault(cells: pa.ChunkedArray, raw: str, column: str, row: int) -> RecordError:
    """Return the fault of a cell that is not a value of a type."""
    cell = cells.slice(row, 1)
    widens = raw == "int64" and inferred_type(cell) == "float64"
    return value_fault(column, raw, repr(cell[0].as_py()[:MAX_SHOWN]), row, widens=widens)


def _parse(cells: pa.ChunkedArray, raw: str) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    match raw:
        case "string":
            return cells
        case "bool":
            return _booleans(cells)
        case "timestamp":
            return _times(cells)
        case "int64" if pc.any(pc.match_substring_regex(cells, HEX)).as_py():
            raise pa.ArrowInvalid("no decimal number")  # a widened column would not accept it
        case _:
            return cells.cast(arrow_type(raw))


def _booleans(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    true = pc.is_in(cells, value_set=pa.array(TRUE))
    known = pc.or_(true, pc.is_in(cells, value_set=pa.array([*FALSE, None], pa.string())))
    if not pc.all(known, min_count=0).as_py():
        raise pa.ArrowInvalid("no boolean")
    return pc.if_else(cells.is_null(), None, true)


def _times(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times in UTC, converted from their zones and truncated to microseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.replace_substring_regex(cells, FINER, r"\1")
    zoned = pc.match_substring_regex(cells, ZONED)
    plain = pc.if_else(zoned, None, cells).cast(pa.timestamp("us"))
    in_utc = pc.if_else(zoned, cells, None).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    return pc.coalesce(plain, in_utc)
