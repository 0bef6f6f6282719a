"""Scans the files of an input in one pass and bounded memory, and builds a record index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.raw_types import as_list, is_raw_type
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema_enforcement import missing_faults
from psflow.ps_runtime.tabular_files.base import (
    CHUNK_BYTES,
    ChunkRange,
    InvalidValues,
    OpenRecords,
    RecordError,
    RecordFormat,
)
from psflow.ps_runtime.tabular_files.files import DataFile, unchanged
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.partitions import open_records
from psflow.ps_runtime.tabular_files.widening import WideningTypes

if TYPE_CHECKING:
    import pyarrow as pa

MAX_COLUMNS = 10_000
"""Tables are rarely wider, and each column takes time and memory before the first record is read."""


@dataclass(frozen=True, slots=True)
class ScannedChunk:
    """Some consecutive records, and the progress of the scan."""

    table: pa.Table
    done_bytes: int
    num_bytes: int
    invalid: tuple[InvalidValues, ...] = ()


class Scan:
    r"""Tabular files to be scanned: iterate over it, then call `index`. Not thread-safe.

    Raises
    ------
    InputError
        If the first file cannot be read, lacks a column or has too many, or the type of a column cannot be read; while
        iterating, if any other file does, a record cannot be read, or a file changes.

    Notes
    -----
    The first file with records determines the columns. The types of text are inferred over its first
    `text_file.INFERRED_ROWS`. A column of integers widens to float64 if a later value is a fraction, and so do
    numbers that other files store in a wider type: earlier tables have the narrow type, later ones and the index have
    the wide one. Every other value that does not fit is invalid. An integer beyond 2**53 is an error in a widened
    column, because float64 cannot hold all of them.

    Memory is bounded by a chunk or two. Each iteration is a scan of its own.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from psflow.ps_runtime.tabular_files.delimited import DelimitedText
    >>> from psflow.ps_runtime.tabular_files.listing import list_files
    >>> from psflow.ps_runtime.tabular_files.reader import RecordReader
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "a.csv").write_text("age,job\n39, Sales\n50, ?\n")
    ...     scan = Scan(list_files(folder, [".csv"]), DelimitedText(na_values=["?"]))
    ...     num_rows = sum(chunk.table.num_rows for chunk in scan)
    ...     with RecordReader(scan.index()) as reader:
    ...         reader.read(1, 2).to_pylist()
    [{'age': 50, 'job': None}]
    """

    def __init__(
        self,
        files: Sequence[DataFile],
        record_format: RecordFormat,
        columns: Sequence[str] | None = None,
        *,
        lists: Mapping[str, str] = MappingProxyType({}),
        known: Mapping[str, str] | None = None,
        max_columns: int = MAX_COLUMNS,
        allows_invalid: bool = False,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._files, self._format, self._chunk_bytes = tuple(files), record_format, chunk_bytes
        self._num_bytes = sum(file.size for file in self._files)
        self._lists, self._known, self._max_columns = lists, known, max_columns
        self._allows_invalid = allows_invalid
        self._first_types, self._unreadable, self._first_file = self._look(columns)
        self._types = WideningTypes(self._first_types, record_format.types)
        self._index: RecordIndex | None = None

    @property
    def columns(self) -> tuple[RawColumn, ...]:
        """The columns that are read, with the types that are known so far."""
        return tuple(RawColumn(name, raw) for name, raw in self._types.now.items())

    @property
    def num_bytes(self) -> int:
        """The size of all files."""
        return self._num_bytes

    @property
    def unreadable(self) -> dict[str, str]:
        """Other columns, of types that cannot be read, if all columns are requested."""
        return dict(self._unreadable)

    def index(self) -> RecordIndex:
        """Return the record index; only after the scan has ended."""
        if self._index is None:
            raise RuntimeError("the scan has not ended: iterate over it first")
        return self._index

    def __iter__(self) -> Iterator[ScannedChunk]:
        self._types, self._index = WideningTypes(self._first_types, self._format.types), None
        chunks: list[tuple[int, ChunkRange, bool, int]] = []  # file, range, whether it starts a run, number of records
        bytes_before = 0
        for number, file in enumerate(self._files):
            for place, starts_run, chunk in self._chunks_of(file):
                chunks.append((number, place, starts_run, chunk.table.num_rows))
                yield replace(chunk, done_bytes=bytes_before + chunk.done_bytes)
            bytes_before += file.size
        if not chunks:
            raise _no_records(self._files)
        self._index = RecordIndex(
            files=self._files,
            record_format=self._format,
            columns=self.columns,
            unreadable=self._unreadable,
            chunk_files=np.array([number for number, _, _, _ in chunks], np.int32),
            chunk_places=np.array([place for _, place, _, _ in chunks], np.int64),
            starts_run=np.array([starts_run for _, _, starts_run, _ in chunks], np.bool_),
            first_records=np.cumsum([0, *(num_records for *_, num_records in chunks)], dtype=np.int64),
        )

    def _look(self, columns: Sequence[str] | None) -> tuple[dict[str, str], dict[str, str], DataFile]:
        """Return the types of the columns that are read, those of unreadable ones, and the file that has them."""
        with _first_records(self._files, self._format) as (file, records):
            return *self._types_in(records, file, columns), file

    def _types_in(
        self, records: OpenRecords, file: DataFile, columns: Sequence[str] | None
    ) -> tuple[dict[str, str], dict[str, str]]:
        names = records.names
        if columns is None:
            _check_number(file, names, self._max_columns)
        asked = list(self._format.types if columns is None else [*columns, *self._format.types])
        if faults := missing_faults(file.shown, "column", asked, names):
            raise InputError(tuple(faults))
        read = [name for name in (names if columns is None else columns) if name]
        if not read:
            raise InputError((f"{file.shown}: expected at least one column to read, got none",))
        unset, known = [name for name in read if name not in self._format.types], self._known or {}
        found = known if known.keys() >= set(unset) else records.types(unset)
        types = {name: self._format.types.get(name) or found[name] for name in read}
        types |= {name: as_list(found[name], raw) for name, raw in self._lists.items() if name in unset}
        unreadable = {name: raw for name, raw in types.items() if not is_raw_type(raw)}
        if unreadable and (columns is not None or len(unreadable) == len(types)):
            raise InputError(tuple(unreadable_fault(file.shown, *column) for column in unreadable.items()))
        return {name: raw for name, raw in types.items() if name not in unreadable}, unreadable

    def _chunks_of(self, file: DataFile) -> Iterator[tuple[ChunkRange, bool, ScannedChunk]]:
        """Yield the chunks of a file with records, each with its range and whether it starts a run."""
        num_records = 0
        with _opened(self._format, file) as records:
            with unchanged(file):
                for name in records.lacking(tuple(self._types.now)):
                    fault = f"{file.shown} has no column {name!r}, which {self._first_file.shown} has"
                    raise InputError((f"{fault}: expected the same columns in all files",))
                if (too_much := records.size_fault(tuple(self._types.now))) is not None:
                    raise InputError((f"{file.shown}: {too_much}",))
            places = records.places(self._chunk_bytes)
            while True:
                try:
                    with unchanged(file):
                        place = next(places, None)
                        if place is None:
                            return
                        table, invalid = self._read(records, place)
                        self._types.check(table, invalid, file.shown, self._format.first_row + num_records)
                except RecordError as fault:
                    raise self._format.error(file, num_records, fault) from None
                num_records += table.num_rows
                if table.num_rows:
                    done_bytes = records.bytes_up_to(place)
                    yield place, records.starts_run(place), ScannedChunk(table, done_bytes, self._num_bytes, invalid)

    def _read(self, records: OpenRecords, place: ChunkRange) -> tuple[pa.Table, tuple[InvalidValues, ...]]:
        """Return a chunk and its invalid values; columns widen until its numbers fit."""
        while True:
            invalid: list[InvalidValues] = []
            try:
                table = records.read(place, self._types.now, invalid.append if self._allows_invalid else None)
                return table, tuple(invalid)
            except RecordError as fault:
                self._types.widen(fault)


def column_names(
    files: Sequence[DataFile], record_format: RecordFormat, max_columns: int = MAX_COLUMNS
) -> tuple[str, ...]:
    """Return the names of all columns that a scan would read or call unreadable, without reading their types.

    Raises InputError if the first file cannot be read, or has more than `max_columns`.
    """
    with _first_records(files, record_format) as (file, records):
        _check_number(file, records.names, max_columns)
        return tuple(name for name in records.names if name)


def _check_number(file: DataFile, names: Sequence[str], most: int) -> None:
    """Raise InputError if a file has more columns than allowed."""
    if len(names) > most:
        what = f"{file.shown}: expected at most {most:,} columns, got {len(names):,}"
        how = f"check the delimiter, and that a row is a record; to read it as it is, set max_columns: {len(names)}"
        raise InputError((f"{what}; {how}",))


@contextmanager
def _first_records(files: Sequence[DataFile], record_format: RecordFormat) -> Iterator[tuple[DataFile, OpenRecords]]:
    """Yield the first file with records, and that file, open."""
    for file in files:
        with unchanged(file), _opened(record_format, file, files) as records:
            if next(records.places(CHUNK_BYTES), None) is not None:
                yield file, records
                return
    raise _no_records(files)


@contextmanager
def _opened(record_format: RecordFormat, file: DataFile, all_files: Sequence[DataFile] = ()) -> Iterator[OpenRecords]:
    try:
        with open_records(record_format, file, all_files) as records:
            yield records
    except RecordError as fault:
        raise record_format.error(file, 0, fault) from None


def _no_records(files: Sequence[DataFile]) -> InputError:
    shown = files[0].shown if files else "an input without files"
    more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
    return InputError((f"{shown}{more}: expected records, found none",))


def unreadable_fault(shown: str, name: str, kind: str) -> str:
    """Return the error message for a column that cannot be read."""
    return (
        f"{shown}: column {name!r} is {kind}: expected numbers, strings, booleans, dates, times, arrays of numbers of "
        "one length, or lists of numbers or strings, at least one of which has a value; leave it out"
    )
