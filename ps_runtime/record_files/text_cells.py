"""Cells of text as values: spaces around them left out, blanks as nulls, and the type that all of them have."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from psflow.ps_runtime.columns.raw_types import arrow_type, first_fault
from psflow.ps_runtime.record_files.base import LARGEST_EXACT, RecordError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FALSE", "TRUE", "inferred_type", "parse_cells", "stripped", "value_fault"]

TRUE = ("true", "True", "TRUE", "1")
FALSE = ("false", "False", "FALSE", "0")

INFERRED = ("int64", "float64", "bool", "date", "timestamp")
"""The types that cells are tried as, in this order; what is none of these is a string."""
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
    """Return the fault of a value that does not have the type of its column; `advice` says what to do."""
    what = f"column {column!r} expects {EXPECTED.get(raw, raw)}, got {got}"
    if advice is None:
        is_cell = raw in EXPECTED
        advice = f"if the value is right, train with columns.{column}.type: string" if is_cell else "correct the value"
    return RecordError(f"{what}; {advice}", record, column, widens)


def stripped(cells: pa.ChunkedArray, na_values: Sequence[str]) -> pa.ChunkedArray:
    """Return text without the white space around it; what is then one of `na_values` is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    bare = pc.ascii_trim_whitespace(cells)
    if pc.sum(pc.binary_length(bare)) == pc.sum(pc.binary_length(cells)):
        return cells
    return pc.if_else(pc.is_in(bare, value_set=pa.array(na_values, pa.string())), None, bare)


def inferred_type(cells: pa.ChunkedArray) -> str:
    """Return the type of stripped cells: int64, float64, bool, date, timestamp or string; float64 if all are null."""
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
            return "string"  # they are names of something
        return raw
    return "string"


def _loses_digits(cells: pa.ChunkedArray) -> bool:
    """Return whether a whole number is among some cells that a float64 may not hold."""
    import pyarrow.compute as pc

    long = cells.filter(pc.match_substring_regex(cells, LONG))
    return any(Decimal(cell).copy_abs() > LARGEST_EXACT for cell in long.to_pylist())  # int() ends at 4,300 digits


def parse_cells(cells: pa.ChunkedArray, raw: str, column: str) -> pa.ChunkedArray:
    """Return stripped cells as values of a scalar type; nulls stay.

    Raises
    ------
    RecordError
        Of the first cell that is no such value.
    """
    import pyarrow as pa

    try:
        return _parse(cells, raw)
    except pa.ArrowInvalid:
        record = first_fault(len(cells), lambda n: _parse(cells.slice(0, n), raw))
        cell = cells.slice(record, 1)
        widens = raw == "int64" and inferred_type(cell) == "float64"
        raise value_fault(column, raw, repr(cell[0].as_py()[:40]), record, widens=widens) from None


def _parse(cells: pa.ChunkedArray, raw: str) -> pa.ChunkedArray:
    match raw:
        case "string":
            return cells
        case "bool":
            return _truths(cells)
        case "timestamp":
            return _times(cells)
        case _:
            return cells.cast(arrow_type(raw))


def _truths(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    true = pc.is_in(cells, value_set=pa.array(TRUE))
    known = pc.or_(true, pc.is_in(cells, value_set=pa.array([*FALSE, None], pa.string())))
    if not pc.all(known, min_count=0).as_py():
        raise pa.ArrowInvalid("no boolean")
    return pc.if_else(cells.is_null(), None, true)


def _times(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times in UTC: those with a zone are converted. What is finer than a microsecond is cut off."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.replace_substring_regex(cells, FINER, r"\1")
    zoned = pc.match_substring_regex(cells, ZONED)
    plain = pc.if_else(zoned, None, cells).cast(pa.timestamp("us"))
    in_utc = pc.if_else(zoned, cells, None).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    return pc.coalesce(plain, in_utc)
