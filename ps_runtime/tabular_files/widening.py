"""Widens the types of the columns of a scan if a number does not fit, unless an integer would lose digits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psflow.ps_runtime.columns.raw_types import wider_type
from psflow.ps_runtime.tabular_files.base import LARGEST_EXACT, InvalidValues, RecordError

if TYPE_CHECKING:
    import pyarrow as pa

LARGE = re.compile(r"'?[+-]?[0-9]{16,}'?$")
"""A whole number as shown among invalid values."""


class WideningTypes:
    """The types of some columns, as known from the records scanned so far."""

    def __init__(self, found: Mapping[str, str], set_types: Mapping[str, str]) -> None:
        self.now = dict(found)
        self._set_types = set_types
        self._large: dict[str, str] = {}  # the first integer of a column that float64 cannot hold, and its location
        self._widened: set[str] = set()  # columns of integers that have widened to float64

    def widen(self, fault: RecordError) -> None:
        """Widen the column at fault; raise the fault if it does not widen.

        Raises
        ------
        RecordError
            Also if it has an integer that would lose digits.
        """
        name = fault.column
        wider = wider_type(self.now[name]) if name is not None and fault.widens else None
        if name is None or wider is None or name in self._set_types:
            raise fault
        if name in self._large:
            what = f"{fault}; a number with a fraction beside {self._large[name]} would make the integer lose digits"
            raise RecordError(what, fault.record, name)
        if _is_whole(self.now[name]):
            self._widened.add(name)
        self.now[name] = wider

    def check(self, table: pa.Table, invalid: Sequence[InvalidValues], shown: str, first_row: int) -> None:
        """Record the integers of a chunk whose first record is `first_row` of the file `shown`.

        Integers that are `invalid` because they exceed int64 count, too: a widened column would hold them.

        Raises RecordError if a number may have lost digits, because it is beyond 2**53 in a column that has widened.
        """
        for name, raw in self.now.items():
            if name in self._widened:
                self._check_widened(table, name)
            elif _is_whole(raw) and name not in self._large:
                found = _first_beyond(table, name, LARGEST_EXACT)
                if found is not None:
                    row, value = found
                    self._large[name] = f"{value} in row {first_row + row} of {shown}"

        for values in invalid:
            for row, value in zip(values.rows.tolist(), values.shown, strict=True):
                if values.column not in self._large and self.now[values.column] == "int64" and LARGE.match(value):
                    self._large[values.column] = f"{value} in row {first_row + row} of {shown}"

    def _check_widened(self, table: pa.Table, name: str) -> None:
        found = _first_beyond(table, name, LARGEST_EXACT - 1)  # 2**53 + 1 is read as 2**53
        if found is not None:
            row, value = found
            got = f"column {name!r} has {value!r} beside whole numbers and fractions"
            if "[" in self.now[name]:
                advice = "write all numbers of its lists with a fraction, or leave the column out"
            else:
                advice = (
                    f"set columns.{name}.type: string if these are names, or float64 if its last digits do not count"
                )
            raise RecordError(f"{got}: it may have lost digits as a float64; {advice}", row, name)


def _is_whole(raw: str) -> bool:
    """Return whether a type is whole numbers or lists of them."""
    return raw.partition("[")[0] == "int64"


def _first_beyond(table: pa.Table, name: str, limit: int) -> tuple[int, Any] | None:
    """Return the first number of a column, or of its lists, that is beyond a limit, with its row; or None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table[name]
    is_list = pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)
    numbers = pc.list_flatten(column) if is_list else column
    span = pc.min_max(numbers)
    low, high = span["min"].as_py(), span["max"].as_py()
    if low is None or (low >= -limit and high <= limit):
        return None
    place = int(pc.indices_nonzero(pc.or_(pc.less(numbers, -limit), pc.greater(numbers, limit)))[0].as_py())
    row = pc.list_parent_indices(column.combine_chunks())[place].as_py() if is_list else place
    return int(row), numbers[place].as_py()
