"""Invalid cells, which are not of the type of their column: their counts, locations and policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.data.non_finite import MAX_SHOWN, UNKNOWN, RecordSource
from psflow.ps_runtime.tabular_files.base import NAME_OF_COLUMN, InvalidValues

if TYPE_CHECKING:
    import pyarrow as pa

Invalid = Literal["error", "missing", "drop"]
"""The policies for invalid cells: refuse the input, treat them as missing, or leave out their rows."""

INVALID_POLICIES: tuple[Invalid, ...] = get_args(Invalid)
INVALID = (
    "Cells that are not of the type of their column, such as text in a column of numbers; error: refuse the input; "
    "missing: treat them as missing values; drop: leave out their rows."
)
"""Describes the key of that name."""

WHAT_MOST_ARE = {
    "int64": "whole numbers",
    "float32": "numbers",
    "float64": "numbers",
    "bool": "true or false",
    "date": "dates",
    "timestamp": "times",
    "string": "strings",
}


@dataclass(frozen=True, slots=True)
class InvalidColumn:
    """A column with cells that are not of its type."""

    name: str
    type: str
    num_cells: int
    num_values: int
    first: str
    where: str

    def __str__(self) -> str:
        """Return the number of valid cells, and the first invalid one."""
        num_valid, what = self.num_values - self.num_cells, WHAT_MOST_ARE.get(self.type, self.type)
        return f"{num_valid:,} of {self.num_values:,} are {what}; {self.where} is {self.first}"


@dataclass(frozen=True, slots=True)
class InvalidCells:
    """The cells of an input that are not of the type of their column."""

    source: RecordSource = UNKNOWN
    num_rows: int = 0
    columns: tuple[InvalidColumn, ...] = ()
    policy: Invalid = "error"
    has_strings: bool = False

    def __str__(self) -> str:
        """Return the number of such rows, and what was done with them."""
        is_one, rows = self.num_rows == 1, f"{self.num_rows:,} row{'s' * (self.num_rows != 1)}"
        if self.policy == "drop":
            return f"{rows} with an invalid cell {'is' if is_one else 'are'} left out"
        return f"{rows} {'has' if is_one else 'have'} an invalid cell, which becomes a missing value"

    def lines(self) -> Iterator[str]:
        """Yield a sentence for each of the first columns, and one for the others."""
        for column in self.columns[:MAX_SHOWN]:
            yield f"{self.source.name}: column {column.name!r}: {column}"
        if len(self.columns) > MAX_SHOWN:
            yield f"{self.source.name}: {len(self.columns) - MAX_SHOWN} more columns have such cells"

    def facts(self) -> dict[str, Any]:
        """Return plain data: number of rows, policy, and the facts of each column."""
        return {
            "rows": self.num_rows,
            "policy": self.policy,
            "has_words": self.has_strings,
            "columns": [asdict(column) for column in self.columns],
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any], source: RecordSource) -> Self:
        """Return the invalid cells that `facts` was called on."""
        columns = tuple(InvalidColumn(**column) for column in facts["columns"])
        return cls(source, int(facts["rows"]), columns, facts["policy"], bool(facts["has_words"]))

    def faults(self, where: str, features: Collection[str] = (), *, may_drop: bool = True) -> tuple[str, ...]:
        """Return `lines` as the faults of an input that is refused for them; empty if it is not refused."""
        if not self.num_rows or self.policy == "missing" or (self.policy == "drop" and may_drop):
            return ()
        *others, last = self.lines()
        drop = "drop, which leaves such rows out, or to " if may_drop else ""
        advice = (
            f"correct the data; or set invalid of {where} to {drop}missing, which treats such cells as missing values"
        )
        if self.policy == "drop":
            advice = f"invalid of {where} is drop, but a prediction has a row for each record; {advice}"
        headers = [column.first.endswith(NAME_OF_COLUMN) for column in self.columns]
        mixed = [column.name for column, is_header in zip(self.columns, headers, strict=True) if not is_header]
        if self.has_strings and mixed:
            advice += f"; or set columns.{mixed[0]}.type: string, if its cells are strings"
        if unneeded := [name for name in mixed if name in features]:
            advice += f"; or leave {unneeded[0]!r} out of features: [...], which names the columns to read"
        return (*others, f"{last}; {advice}")


ALL_VALID = InvalidCells()


def rows_with_invalid(invalid: Sequence[InvalidValues], num_rows: int) -> NDArray[np.bool_]:
    """Return the rows of a chunk with an invalid value."""
    has_one = np.zeros(num_rows, np.bool_)
    for values in invalid:
        has_one[values.rows] = True
    return has_one


class CountedCells:
    """Counts the cells of a scan, chunk by chunk."""

    def __init__(self) -> None:
        self._num_values: dict[str, int] = {}
        self._num_cells: dict[str, int] = {}
        self._firsts: dict[str, tuple[int, str]] = {}
        self.num_rows = 0
        """Rows with an invalid cell."""
        self._num_records = 0

    def add(self, table: pa.Table, invalid: Sequence[InvalidValues], of_part: NDArray[np.bool_] | None = None) -> None:
        """Count the cells of a chunk, or only of its rows that are `of_part`."""
        for name, column in zip(table.column_names, table.columns, strict=True):
            num_values = len(column) - column.null_count
            if of_part is not None:
                is_valid = column.is_valid().to_numpy() if column.null_count else True
                num_values = int(np.count_nonzero(of_part & is_valid))
            self._num_values[name] = self._num_values.get(name, 0) + num_values
        has_one = np.zeros(table.num_rows, np.bool_)
        for values in invalid:
            rows = values.rows if of_part is None else values.rows[of_part[values.rows]]
            if len(rows):
                has_one[rows] = True
                self._num_values[values.column] += len(rows)
                self._num_cells[values.column] = self._num_cells.get(values.column, 0) + len(rows)
                shown = values.shown[int(np.searchsorted(values.rows, rows[0]))]
                self._firsts.setdefault(values.column, (self._num_records + int(rows[0]), shown))
        self.num_rows += int(has_one.sum())
        self._num_records += table.num_rows

    def columns(self, types: Sequence[RawColumn], where: Callable[[int], str]) -> tuple[InvalidColumn, ...]:
        """Return the columns with invalid cells; `where` returns the location of a record."""
        return tuple(
            InvalidColumn(column.name, column.type, num_cells, self._num_values[column.name], shown, where(record))
            for column in types
            if (num_cells := self._num_cells.get(column.name))
            for record, shown in [self._firsts[column.name]]
        )
