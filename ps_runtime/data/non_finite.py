"""Cells that are blank, NaN or infinite: where they are, and what becomes of the rows that have one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.arrays import Array, Columns, named_arrays, num_rows
from psflow.ps_runtime.errors import InputError, did_you_mean
from psflow.ps_runtime.specs.schema import InputSchema

NonFinite = Literal["error", "drop", "keep"]
"""What becomes of rows with a blank, NaN or infinite cell: they are refused, left out, or given to the model."""

POLICIES: tuple[NonFinite, ...] = get_args(NonFinite)
NON_FINITE = (
    "Rows with a cell, labels included, that is NaN, infinite, or blank and not filled by impute; error: refuse the "
    "input; drop: leave them out; keep: give them to the model, blanks as NaN."
)
"""Describes the key of that name."""

CHUNK_BYTES = 2**20
MAX_SHOWN = 10
"""Columns that an error names one by one."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """Where records come from, as people call it."""

    name: str = ""
    first_row: int = 0
    note: str = "the first row is 0"
    label_dtype: str | None = None


UNKNOWN = RecordSource()


@dataclass(frozen=True, slots=True)
class NonFiniteColumn:
    """A column with cells that are blank, NaN or infinite."""

    name: str
    num_cells: int
    first_record: int
    first_row: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class NonFiniteCells:
    """The cells of some records that are blank, NaN or infinite."""

    source: RecordSource = UNKNOWN
    num_rows: int = 0
    columns: tuple[NonFiniteColumn, ...] = ()
    is_dropped: bool = False

    def __str__(self) -> str:
        """Return how many rows these are, and what became of them."""
        rows = "1 row that has" if self.num_rows == 1 else f"{self.num_rows:,} rows that have"
        return f"{rows} a blank, NaN or infinite cell {'left out' if self.is_dropped else 'kept'}"

    @property
    def first(self) -> str:
        """Column and row of a first cell; empty if there is none."""
        if not self.columns:
            return ""
        column = min(self.columns, key=lambda column: column.first_record)
        where = column.file or self.source.name
        of = f" of {where}" if where else ""
        return f"{column.name}, row {column.first_row}{of} ({self.source.note})"

    def lines(self) -> Iterator[str]:
        """Yield a sentence for each column, of many for the first ones."""
        where = f"{self.source.name}: " if self.source.name else ""
        for column in self.columns[:MAX_SHOWN]:
            cells = "1 cell that is" if column.num_cells == 1 else f"{column.num_cells:,} cells that are"
            of = f" of {column.file}" if column.file else ""
            yield (
                f"{where}{column.name} has {cells} blank, NaN or infinite, the first in row {column.first_row}{of} "
                f"({self.source.note})"
            )
        if len(self.columns) > MAX_SHOWN:
            yield f"{where}{len(self.columns) - MAX_SHOWN} more columns have such cells"

    def facts(self) -> dict[str, Any]:
        """Return plain data: number of rows, and for each column number of cells and first row."""
        columns = {
            column.name: {"cells": column.num_cells, "first_row": column.first_row}
            | ({"file": column.file} if column.file else {})
            for column in self.columns
        }
        return {"rows": self.num_rows, "columns": columns}

    def faults(self) -> tuple[str, ...]:
        """Return `lines` as the faults of an input that is to have no such cell."""
        *others, last = self.lines()
        return (*others, f"{last}; correct the data, or set non_finite of this input: what becomes of such rows")


ALL_FINITE = NonFiniteCells()


@dataclass(eq=False)
class RefusedCellsError(InputError):
    """An input has cells that are refused; `schema` is that of the input with them.

    `columns` are those of tabular files that have them, as faults call them: ``column 'age'``.
    """

    schema: InputSchema
    columns: frozenset[str] = frozenset()


def non_finite_cells(
    features: Columns,
    labels: Columns | None,
    columns: Mapping[str, Sequence[str]] = MappingProxyType({}),
    source: RecordSource = UNKNOWN,
) -> tuple[NonFiniteCells, NDArray[np.bool_]]:
    """Look at every number of some records, some thousands at a time."""
    has_one = np.zeros(num_rows(features), np.bool_)
    found: list[NonFiniteColumn] = []
    for name, array in named_arrays(features, labels):
        if array.dtype.kind not in "fc":
            continue
        shown = [f"column {column!r}" for column in columns.get(name, ())] or [name]
        found += _columns_of(array, shown, source.first_row, has_one)
    return NonFiniteCells(source, int(has_one.sum()), tuple(found)), has_one


def policy_faults(where: str, policy: object, policies: Sequence[str] = POLICIES) -> list[str]:
    """Return what is wrong with a policy, as a list of no or one sentence."""
    if isinstance(policy, str) and policy in policies:
        return []
    near = did_you_mean(str(policy), policies)
    return [f"{where} is {policy!r}: expected one of {', '.join(policies)}{near}"]


def _columns_of(
    array: Array, names: Sequence[str], first_row: int, has_one: NDArray[np.bool_]
) -> Iterator[NonFiniteColumn]:
    """Yield those of the columns `names` of `array` that have such cells; set `has_one` for their rows."""
    num_cells = np.zeros(len(names), np.int64)
    first = np.full(len(names), -1, np.int64)
    step = max(1, CHUNK_BYTES // max(1, array.nbytes // len(array)))
    for start in range(0, len(array), step):
        finite = np.isfinite(array[start : start + step])
        if finite.all():
            continue
        bad = ~finite.reshape(len(finite), len(names), -1)
        has_one[start : start + step] |= bad.any(axis=(1, 2))
        num_cells += bad.sum(axis=(0, 2))
        rows = bad.any(axis=2)
        is_new = (first < 0) & rows.any(axis=0)
        first[is_new] = start + rows.argmax(axis=0)[is_new]
    for index in np.flatnonzero(num_cells):
        yield NonFiniteColumn(
            names[int(index)], int(num_cells[index]), int(first[index]), first_row + int(first[index])
        )
