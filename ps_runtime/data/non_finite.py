"""Missing, NaN and infinite cells: their counts, locations and policy."""

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
"""The policies for rows with a missing, NaN or infinite cell: refuse the input, leave them out, or keep them."""

POLICIES: tuple[NonFinite, ...] = get_args(NonFinite)
NON_FINITE = (
    "Rows with a cell, labels included, that is NaN, infinite, or missing and not imputed; error: refuse the "
    "input; drop: leave them out; keep: give them to the model, missing values as NaN."
)
"""Describes the key of that name."""

CHUNK_BYTES = 2**20
MAX_SHOWN = 10
"""Columns that an error lists."""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """The origin of records, as error messages name it."""

    name: str = ""
    first_row: int = 0
    note: str = "the first row is 0"
    label_dtype: str | None = None


UNKNOWN = RecordSource()


@dataclass(frozen=True, slots=True)
class NonFiniteColumn:
    """A column with missing, NaN or infinite cells."""

    name: str
    num_cells: int
    first_record: int
    first_row: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class NonFiniteCells:
    """The missing, NaN or infinite cells of some records."""

    source: RecordSource = UNKNOWN
    num_rows: int = 0
    columns: tuple[NonFiniteColumn, ...] = ()
    is_dropped: bool = False

    def __str__(self) -> str:
        """Return the number of such rows, and what was done with them."""
        rows = "1 row that has" if self.num_rows == 1 else f"{self.num_rows:,} rows that have"
        return f"{rows} a missing, NaN or infinite cell {'left out' if self.is_dropped else 'kept'}"

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
        """Yield a sentence for each of the first columns, and one for the others."""
        where = f"{self.source.name}: " if self.source.name else ""
        for column in self.columns[:MAX_SHOWN]:
            cells = "1 cell that is" if column.num_cells == 1 else f"{column.num_cells:,} cells that are"
            of = f" of {column.file}" if column.file else ""
            yield (
                f"{where}{column.name} has {cells} missing, NaN or infinite, the first in row {column.first_row}{of} "
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
        """Return `lines` as the faults of an input that must not have such cells."""
        *others, last = self.lines()
        return (*others, f"{last}; correct the data, or set non_finite of this input, the policy for such rows")


ALL_FINITE = NonFiniteCells()


@dataclass(eq=False)
class RefusedCellsError(InputError):
    """An input has cells that are refused; `schema` is that of the input including them.

    `columns` are the affected columns of tabular files, as faults name them: ``column 'age'``.
    """

    schema: InputSchema
    columns: frozenset[str] = frozenset()


def non_finite_cells(
    features: Columns,
    labels: Columns | None,
    columns: Mapping[str, Sequence[str]] = MappingProxyType({}),
    source: RecordSource = UNKNOWN,
) -> tuple[NonFiniteCells, NDArray[np.bool_]]:
    """Check every number of some records, some thousands at a time."""
    has_one = np.zeros(num_rows(features), np.bool_)
    found: list[NonFiniteColumn] = []
    for name, array in named_arrays(features, labels):
        if array.dtype.kind not in "fc":
            continue
        shown = [f"column {column!r}" for column in columns.get(name, ())] or [name]
        found += _columns_of(array, shown, source.first_row, has_one)
    return NonFiniteCells(source, int(has_one.sum()), tuple(found)), has_one


def policy_faults(where: str, policy: object, policies: Sequence[str] = POLICIES) -> list[str]:
    """Return the faults of a policy: none or one sentence."""
    if isinstance(policy, str) and policy in policies:
        return []
    near = did_you_mean(str(policy), policies)
    return [f"{where} is {policy!r}: expected one of {', '.join(policies)}{near}"]


def _columns_of(
    array: Array, names: Sequence[str], first_row: int, has_one: NDArray[np.bool_]
) -> Iterator[NonFiniteColumn]:
    """Yield the columns `names` of `array` with such cells; set `has_one` for their rows."""
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
