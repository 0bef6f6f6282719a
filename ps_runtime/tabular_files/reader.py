"""Reads records by number, through a record index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Self

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.raw_types import arrow_type
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema_enforcement import missing_faults
from psflow.ps_runtime.tabular_files.base import ChunkRange, InvalidValues, OpenRecords, RecordError
from psflow.ps_runtime.tabular_files.files import unchanged
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.partitions import open_records
from psflow.ps_runtime.tabular_files.scan import unreadable_fault

if TYPE_CHECKING:
    import pyarrow as pa


class RecordReader:
    """Reads any range of records: a context manager, which closes its file.

    Raises InputError if the index has no such column; while reading, if a file has changed since the scan.

    Notes
    -----
    The same range has the same values each time, in any process. The reader keeps one file open and the last chunk in
    memory, so that consecutive ranges read each chunk once. Not thread-safe: each thread needs its own reader; they
    may share the index.
    """

    def __init__(
        self, index: RecordIndex, columns: Sequence[str] | None = None, *, allows_invalid: bool = False
    ) -> None:
        self.index = index
        self._allows_invalid = allows_invalid
        types = {column.name: column.type for column in index.columns}
        names = list(types) if columns is None else list(columns)
        shown = index.files[0].shown
        faults = [unreadable_fault(shown, name, index.unreadable[name]) for name in names if name in index.unreadable]
        faults += missing_faults(shown, "column", [name for name in names if name not in index.unreadable], list(types))
        if not names:
            faults.append(f"{shown}: expected at least one column to read, got none")
        if faults:
            raise InputError(tuple(faults))
        self._types = {name: types[name] for name in names}
        self._file: tuple[int, OpenRecords] | None = None
        self._last: tuple[int, pa.Table, tuple[InvalidValues, ...]] | None = None

    @property
    def columns(self) -> tuple[RawColumn, ...]:
        """The columns that are read."""
        return tuple(RawColumn(name, raw) for name, raw in self._types.items())

    @property
    def num_records(self) -> int:
        """Records of all files."""
        return self.index.num_records

    def read_chunk(self, number: int) -> pa.Table:
        """Return the records of a chunk.

        Raises
        ------
        InputError
            If the file has changed since the scan, or is no longer readable.
        ValueError
            If there is no such chunk.
        """
        return self._chunk(number)[0]

    def invalid(self, number: int) -> tuple[InvalidValues, ...]:
        """Return the values of a chunk that are null because they have another type than their column."""
        return self._chunk(number)[1]

    def readable(
        self, number: int, on_unreadable: Callable[[int, str, str], object]
    ) -> Iterator[tuple[int, pa.Table, tuple[InvalidValues, ...]]]:
        """Yield the records of a chunk that can be read.

        Raises InputError if the file has changed; if it is not text, and a record of it cannot be read.
        """
        with unchanged(self.index.file_of(number)):
            opened = self._opened(number)
            first, stop = self.index.first_records[number : number + 2].tolist()
            place = self.index.place_of(number)
            if opened.count(place) != stop - first:
                raise self._changed(number, opened.count(place))
        yield from self._runs(number, place, first, on_unreadable)

    def read(self, start: int, stop: int) -> pa.Table:
        """Return the records ``[start, stop)``.

        Raises
        ------
        InputError
            As for `read_chunk`.
        ValueError
            If there are no such records.
        """
        import pyarrow as pa

        if not 0 <= start <= stop <= self.num_records:
            raise ValueError(f"expected records in [0, {self.num_records}], in order, got [{start}, {stop})")
        schema = pa.schema([(name, arrow_type(raw)) for name, raw in self._types.items()])
        parts = [schema.empty_table()]
        while start < stop:
            chunk = self.index.chunk_of(start)
            first, end = self.index.first_records[chunk : chunk + 2].tolist()
            parts.append(self.read_chunk(chunk).slice(start - first, min(stop, end) - start))
            start = end
        return pa.concat_tables(parts)

    def close(self) -> None:
        """Close the file and drop the last chunk. Idempotent; reading opens the file again."""
        if self._file is not None:
            self._file[1].close()
        self._file = self._last = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _chunk(self, number: int) -> tuple[pa.Table, tuple[InvalidValues, ...]]:
        if not 0 <= number < self.index.num_chunks:
            raise ValueError(f"expected a chunk in [0, {self.index.num_chunks}), got {number}")
        if self._last is None or self._last[0] != number:
            self._last = None  # freed before another one is read
            self._last = number, *self._read(number)
        return self._last[1:]

    def _read(self, number: int) -> tuple[pa.Table, tuple[InvalidValues, ...]]:
        index = self.index
        try:
            table, invalid = self._records_at(number, index.place_of(number))
        except RecordError as fault:
            raise self._located(number, fault) from None
        if table.num_rows != int(index.first_records[number + 1] - index.first_records[number]):
            raise self._changed(number, table.num_rows)
        return table, invalid

    def _records_at(self, number: int, place: ChunkRange) -> tuple[pa.Table, tuple[InvalidValues, ...]]:
        """Return the records in a range of the file of a chunk."""
        invalid: list[InvalidValues] = []
        with unchanged(self.index.file_of(number)):
            on_invalid = invalid.append if self._allows_invalid else None
            return self._opened(number).read(place, self._types, on_invalid), tuple(invalid)

    def _runs(
        self, number: int, place: ChunkRange, first: int, on_unreadable: Callable[[int, str, str], object]
    ) -> Iterator[tuple[int, pa.Table, tuple[InvalidValues, ...]]]:
        """Yield a chunk, or recursively its halves, until each unreadable record is alone."""
        opened = self._opened(number)
        try:
            table, invalid = self._records_at(number, place)
        except RecordError as fault:
            parts = opened.parts(place)
            if parts and fault.record is not None:
                for part in parts:
                    yield from self._runs(number, part, first, on_unreadable)
                    first += opened.count(part)
            elif opened.count(place) == 1 and fault.record is not None:
                on_unreadable(first, str(fault), opened.text(place))
            else:
                raise self._located(number, fault) from None
            return
        if table.num_rows:
            yield first, table, invalid

    def _located(self, number: int, fault: RecordError) -> InputError:
        return self.index.record_format.error(self.index.file_of(number), self.index.first_in_file(number), fault)

    def _changed(self, number: int, num_records: int) -> InputError:
        first, stop = self.index.first_records[number : number + 2].tolist()
        what = f"chunk {number} has {num_records} records, expected {stop - first}: the file has changed"
        return InputError((f"{self.index.file_of(number).shown}: {what}; run the command again",))

    def _opened(self, number: int) -> OpenRecords:
        file_number = int(self.index.chunk_files[number])
        if self._file is None or self._file[0] != file_number:
            self.close()
            self._file = file_number, open_records(self.index.record_format, self.index.files[file_number])
        return self._file[1]
