"""Reads Parquet: a chunk is a row group, or a slice of a large one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from psflow.ps_runtime.tabular_files.base import ChunkRange, OnInvalid, OpenRecords, RecordFormat
from psflow.ps_runtime.tabular_files.files import DataFile, open_file
from psflow.ps_runtime.tabular_files.stored_columns import as_raw_columns, check_names, stored_types, whole_file

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROW_GROUP_BYTES = 64 * 1024**2
"""A larger row group is read in slices."""
SLICE_BYTES = 16 * 1024**2
VALUE_BYTES = 8
"""Minimum memory of a value, however it is compressed."""
BUFFER_BYTES = 1024**2

MAX_COMPRESSION_RATIO = 1000
"""Records are rarely stored more compactly; if they are, 8 MB may be 8 GB to read, as in a column of one value."""
SMALL_BYTES = 1024**3
"""Records with at most this size in memory are read however they are compressed."""


@dataclass(frozen=True, kw_only=True)
class Parquet(RecordFormat):
    """Records in Parquet files, whose columns have types; `types` reads some of them as another one."""

    name: ClassVar[str] = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    max_compression_ratio: int = MAX_COMPRESSION_RATIO

    @property
    def first_row(self) -> int:
        """The number of the first record of a file in messages."""
        return 0

    @property
    def row_note(self) -> str:
        """How rows are counted."""
        return "the first row is 0"

    def open(self, file: DataFile) -> OpenRecords:
        """Return the open file; see `RecordFormat.open`."""
        return OpenParquet(file, self.types, self.max_compression_ratio)


class OpenParquet(OpenRecords):
    """An open Parquet file. Slices of a row group are read in order without decoding earlier ones again."""

    def __init__(self, file: DataFile, set_types: Mapping[str, str], max_ratio: int) -> None:
        import pyarrow.parquet as pq

        self.file, self._set_types, self._max_ratio = file, set_types, max_ratio
        self._opened = open_file(file)
        try:
            with whole_file("Parquet"):
                # buffered, otherwise each column of a large row group is read as a whole
                self._parquet = pq.ParquetFile(
                    self._opened, buffer_size=BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
                )
                self._schema = self._parquet.schema_arrow
            check_names(self._schema)
        except BaseException:
            self.close()
            raise
        metadata = self._parquet.metadata
        self._bounds = np.cumsum([0, *(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))])
        self._next: tuple[int, tuple[str, ...]] = (-1, ())  # next row and columns of the open slices
        self._slices: Iterator[pa.RecordBatch] = iter(())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns, in order."""
        return tuple(self._schema.names)

    def types(self, names: Sequence[str]) -> dict[str, str]:
        """Return the types of some columns; see `OpenRecords.types`."""
        return stored_types(self._schema, names)

    def places(self, chunk_bytes: int) -> Iterator[ChunkRange]:
        """Return the rows of each chunk; see `OpenRecords.places`."""
        for group, start in enumerate(self._bounds[:-1].tolist()):
            stop = int(self._bounds[group + 1])
            rows = self._slice_rows(group, stop - start)
            for first in range(start, stop, rows):
                yield ChunkRange(first, min(first + rows, stop))

    def starts_run(self, place: ChunkRange) -> bool:
        """Return whether a chunk begins a row group; otherwise earlier rows of the group are decoded, too."""
        return place.start in self._bounds

    def read(self, place: ChunkRange, types: Mapping[str, str], on_invalid: OnInvalid | None = None) -> pa.Table:
        """Return the records of a chunk; see `OpenRecords.read`."""
        import pyarrow as pa

        with whole_file("Parquet"):
            table = pa.Table.from_batches(self._batches(place, tuple(types)))
            table.validate(full=True)  # pyarrow does not check that strings are UTF-8
        return as_raw_columns(table, types, self._set_types, on_invalid)

    def size_fault(self, names: Sequence[str]) -> str | None:
        """Compare the minimum size of the values with that of the file; see `OpenRecords.size_fault`."""
        num_rows = int(self._bounds[-1])
        num_bytes = num_rows * len(names) * VALUE_BYTES
        if num_bytes <= max(SMALL_BYTES, self._max_ratio * self.file.size):
            return None
        ratio = -(-num_bytes // self.file.size)
        return (
            f"its {self.file.size:,} bytes hold {num_rows:,} records, {num_bytes:,} bytes of values: expected at most "
            f"{self._max_ratio:,} times the size of the file, got {ratio:,} times; check how it was written, or name "
            f"fewer features; to read it as it is, set max_compression_ratio: {ratio}"
        )

    def count(self, place: ChunkRange) -> int:
        """Return how many records a chunk has; see `OpenRecords.count`."""
        return place.stop - place.start

    def parts(self, place: ChunkRange) -> tuple[ChunkRange, ...]:
        """Return none: an unreadable value is damage, or one of many."""
        return ()

    def text(self, place: ChunkRange) -> str:
        """Return an empty text: the file is not text."""
        return ""

    def check_types(self, types: Mapping[str, str]) -> None:
        """Check the types of columns; see `OpenRecords.check_types`."""
        as_raw_columns(self._schema.empty_table(), types, self._set_types)

    def bytes_up_to(self, place: ChunkRange) -> int:
        """Return about how many bytes of the file have been read after the chunk."""
        return self.file.size * place.stop // int(self._bounds[-1])

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._opened.close()

    def _slice_rows(self, group: int, num_rows: int) -> int:
        """Return the number of rows of a row group in a chunk: all of them, unless it is large."""
        # not by column: pyarrow crashes on the column metadata of a damaged file
        stored = self._parquet.metadata.row_group(group).total_byte_size
        num_bytes = max(stored, num_rows * len(self.names) * VALUE_BYTES)
        return max(1, num_rows if num_bytes <= MAX_ROW_GROUP_BYTES else num_rows * SLICE_BYTES // num_bytes)

    def _batches(self, place: ChunkRange, names: tuple[str, ...]) -> list[pa.RecordBatch]:
        """Return the rows of one chunk, which lies in one row group."""
        import pyarrow as pa

        batches = []
        row = place.start
        group = int(np.searchsorted(self._bounds, row, side="right")) - 1
        if row == self._bounds[group] or self._next != (row, names):
            row = int(self._bounds[group])
            size = place.stop - place.start
            self._slices = self._parquet.iter_batches(size, [group], columns=list(names), use_threads=False)
        while row < place.stop:
            batch = next(self._slices, None)
            if batch is None:
                raise pa.ArrowInvalid(f"it ends at row {row}")
            if row + len(batch) > place.stop:
                self._slices = chain([batch.slice(place.stop - row)], self._slices)
                batch = batch.slice(0, place.stop - row)
            batches.append(batch.slice(max(0, place.start - row)))
            row += len(batch)
        self._next = row, names
        return [batch for batch in batches if len(batch)]
