"""Scans the tabular files of an input once: its records, what is learned from them, and the rows left out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.values import array_of, missing_rows, numbers_of
from psflow.ps_runtime.data.invalid_cells import CountedCells, Invalid, InvalidCells, rows_with_invalid
from psflow.ps_runtime.data.non_finite import NonFinite, NonFiniteCells, NonFiniteColumn, RecordSource
from psflow.ps_runtime.data.part import InputPart
from psflow.ps_runtime.data.reading_progress import watch_scan
from psflow.ps_runtime.errors import CellError, InputError
from psflow.ps_runtime.tabular_files.base import InvalidValues
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.scan import Scan

if TYPE_CHECKING:
    import pyarrow as pa

FLOAT32_MAX = float(np.finfo(np.float32).max)
MAX_LABELS = 10_000
"""A label with more distinct numbers has no classes."""


@dataclass(frozen=True, eq=False)
class InputScan:
    """The results of one pass over an input."""

    index: RecordIndex
    kept_records: NDArray[np.int64]
    non_finite: NonFiniteCells
    invalid: InvalidCells
    labels: NDArray[Any]
    label_records: NDArray[np.int64]


def faulty_rows(
    table: pa.Table, filled: Collection[str], of_part: NDArray[np.bool_] | None = None
) -> dict[str, NDArray[np.bool_]]:
    """Return the rows with a missing, NaN or infinite cell, by the name of the column."""
    found = {}
    for name in table.column_names:
        array = table.column(name).combine_chunks()
        rows = np.zeros(len(array), np.bool_) if name in filled else missing_rows(array)
        rows = rows | _beyond_float32(array)
        if of_part is not None:
            rows = rows & of_part
        if rows.any():
            found[name] = rows
    return found


def kept_rows(of_part: NDArray[np.bool_] | None, left_out: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.int64] | None:
    """Return the rows of a chunk that belong to an input; None: all."""
    kept = of_part
    for rows in left_out.values():
        kept = ~rows if kept is None else kept & ~rows
    return None if kept is None else np.flatnonzero(kept)


def kept_of_part(
    of_part: NDArray[np.bool_] | None, invalid: Sequence[InvalidValues], num_rows: int
) -> NDArray[np.bool_]:
    """Return the rows of a chunk that belong to a part and have no invalid value."""
    is_valid = ~rows_with_invalid(invalid, num_rows)
    return is_valid if of_part is None else of_part & is_valid


def _beyond_float32(array: pa.Array) -> NDArray[np.bool_]:
    """Return the rows with a number that overflows float32."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(array.type):
        return np.asarray(np.isinf(array_of(array)).any(axis=1))
    if not pa.types.is_floating(array.type):
        return np.zeros(len(array), np.bool_)
    return np.asarray(np.abs(array.to_numpy(zero_copy_only=False)) > FLOAT32_MAX)


def source_of(index: RecordIndex, label_dtype: str | None = None) -> RecordSource:
    """Return the source of the records of an index; see `RecordSource` for `label_dtype`."""
    [first, *others] = (file.shown for file in index.files)
    name = f"{first} and {len(others)} more files" if others else first
    return RecordSource(name, index.record_format.first_row, index.record_format.row_note, label_dtype)


def located(error: CellError, index: RecordIndex, record: int) -> InputError:
    """Return the error of a cell with the file and row of its record."""
    file, row = index.place(record)
    return InputError((f"{file}: column {error.column!r}, row {row} ({index.record_format.row_note}): {error.reason}",))


def scan_input(
    scan: Scan,
    filled: Collection[str],
    non_finite: NonFinite,
    where: str,
    *,
    label: str | None = None,
    learn: Callable[[pa.Table], object] | None = None,
    part: InputPart | None = None,
    invalid: Invalid = "error",
) -> InputScan:
    """Read all records once; pass those that are kept to `learn`.

    Raises InputError as `Scan` does, and as `learn` does; if every row is refused or left out; if the part has no
    record.

    Notes
    -----
    With ``error`` rows are kept, or left out if they have an invalid cell, and the caller refuses the input once it
    knows what has been learned.
    """
    cells, counted = _Cells(), CountedCells()
    learning = None if learn is None else _Learning(learn)
    labels = _Labels(label)
    kept: list[int] = []
    num_records = 0
    report = watch_scan(where)
    for chunk in scan:
        of_part = None if part is None else part.has(num_records, chunk.table.num_rows)
        num_records += chunk.table.num_rows
        counted.add(chunk.table, chunk.invalid, of_part)
        if chunk.invalid and invalid != "missing":
            of_part = kept_of_part(of_part, chunk.invalid, chunk.table.num_rows)
        faulty = faulty_rows(chunk.table, filled, of_part)
        cells.add(chunk.table, faulty)
        rows = kept_rows(of_part, faulty if non_finite == "drop" else {})
        labels.add(chunk.table, rows)
        kept.append(chunk.table.num_rows if rows is None else len(rows))
        if learning is not None:
            learning.add(chunk.table, rows)
        report(chunk.done_bytes, chunk.num_bytes)
    index = scan.index()
    found = cells.found(index, is_dropped=non_finite == "drop")
    of_no_type = invalid_cells(counted, index, invalid)
    if learning is not None and learning.error is not None:
        refused = found.faults() if found.num_rows and non_finite == "error" else ()
        of_learning = located(learning.error, index, learning.error.row).faults
        raise InputError((*of_no_type.faults(where), *refused, *of_learning))
    if not sum(kept):
        raise InputError(_faults_of_nothing(of_no_type, found, f"{where}: part {part} has none", num_records, where))
    return InputScan(index, np.array(kept, np.int64), found, of_no_type, labels.values, labels.records)


def invalid_cells(counted: CountedCells, index: RecordIndex, policy: Invalid) -> InvalidCells:
    """Return the invalid cells that a scan has counted, with their locations."""

    def where(record: int) -> str:
        file, row = index.place(record)
        return f"row {row}{f' of {file}' if len(index.files) > 1 else ''} ({index.record_format.row_note})"

    columns = counted.columns(index.columns, where)
    has_strings = isinstance(index.record_format, DelimitedText)
    return InvalidCells(source_of(index), counted.num_rows, columns, policy, has_strings)


def _faults_of_nothing(
    invalid: InvalidCells, found: NonFiniteCells, of_part: str, num_records: int, where: str
) -> tuple[str, ...]:
    """Return why no record is left."""
    if not invalid.num_rows and not found.num_rows:
        return (f"{of_part} of the {num_records} records; make it larger",)
    if refused := invalid.faults(where):
        return refused
    drops = [name for name, cells in (("invalid", invalid), ("non_finite", found)) if cells.num_rows]
    return (*invalid.lines(), *found.lines(), f"{where}: {' and '.join(drops)} is drop, which leaves no row")


class _Learning:
    """Feeds `learn` up to the first value that it refuses, whose location is known only at the end of the scan."""

    def __init__(self, learn: Callable[[pa.Table], object]) -> None:
        self.error: CellError | None = None
        self._learn = learn
        self._num_records = 0
        self._num_learned = 0

    def add(self, table: pa.Table, rows: NDArray[np.int64] | None) -> None:
        """Learn from some `rows` of a chunk; None: from all."""
        kept = table if rows is None else table.take(rows)
        if self.error is None and kept.num_rows:
            try:
                self._learn(kept)
            except CellError as error:
                row = error.row - self._num_learned
                record = self._num_records + (row if rows is None else int(rows[row]))
                self.error = CellError(error.column, record, error.reason)
        self._num_learned += kept.num_rows
        self._num_records += table.num_rows


class _Labels:
    """Collects labels that are numbers."""

    def __init__(self, column: str | None) -> None:
        self._column = column
        self._num_records = 0
        self.values: NDArray[Any] = np.empty(0, np.int64)
        self.records: NDArray[np.int64] = np.empty(0, np.int64)

    def add(self, table: pa.Table, kept: NDArray[np.int64] | None) -> None:
        """Add the labels of the `kept` rows of a chunk; None: of all."""
        import pyarrow as pa

        if self._column is not None and pa.types.is_primitive(table.column(self._column).type):
            numbers = numbers_of(table.column(self._column).combine_chunks())
            rows = np.flatnonzero(np.isfinite(numbers))
            if kept is not None:
                rows = np.intersect1d(rows, kept, assume_unique=True)
            found, firsts = np.unique(numbers[rows], return_index=True)
            self._merge(found, self._num_records + rows[firsts])
        self._num_records += table.num_rows

    def _merge(self, found: NDArray[Any], records: NDArray[np.int64]) -> None:
        values, places = np.concatenate([self.values, found]), np.concatenate([self.records, records])
        values, firsts = np.unique(values, return_index=True)  # np.unique returns the first of equal values
        kept = slice(None) if values.size <= MAX_LABELS else [0, -1]
        self.values, self.records = values[kept], places[firsts][kept]


class _Cells:
    """Counts the faulty cells of a scan."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._firsts: dict[str, int] = {}
        self._num_rows = 0
        self._num_records = 0

    def add(self, table: pa.Table, faulty: Mapping[str, NDArray[np.bool_]]) -> None:
        """Count the faulty rows of a chunk."""
        for name, rows in faulty.items():
            self._counts[name] = self._counts.get(name, 0) + int(rows.sum())
            self._firsts.setdefault(name, self._num_records + int(rows.argmax()))
        self._num_records += table.num_rows
        if faulty:
            self._num_rows += int(np.logical_or.reduce(list(faulty.values())).sum())

    def found(self, index: RecordIndex, *, is_dropped: bool) -> NonFiniteCells:
        """Return the counts, with the locations of the first cells."""
        columns = []
        for column in index.columns:
            if column.name in self._counts:
                first = self._firsts[column.name]
                file, row = index.place(first)
                name = f"column {column.name!r}"
                columns.append(
                    NonFiniteColumn(name, self._counts[column.name], first, row, file * (len(index.files) > 1))
                )
        return NonFiniteCells(source_of(index), self._num_rows, tuple(columns), is_dropped and self._num_rows > 0)
