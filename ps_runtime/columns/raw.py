"""Raw columns of records: a name, and the type of the values."""

from __future__ import annotations

from dataclasses import dataclass

TYPES = ("int64", "float32", "float64", "string", "bool", "date", "timestamp")
"""The types of one value. A date is a day; a timestamp has microseconds and no zone."""


@dataclass(frozen=True, slots=True)
class RawColumn:
    """A column of records before any preprocessing."""

    name: str
    type: str


def is_list(column: RawColumn) -> bool:
    """Return whether a record has a list of any length in the column."""
    return column.type.endswith("[]")
