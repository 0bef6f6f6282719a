"""The record index: the location of every record in the files of one input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.base import ChunkRange, RecordFormat
from psflow.ps_runtime.tabular_files.files import DataFile, check_unchanged
from psflow.ps_runtime.tabular_files.formats import RECORD_FORMATS
from psflow.ps_runtime.tabular_files.sealed import seal, unseal


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordIndex:
    """The result of a scan: the records of some files by number, in chunks that can be read alone.

    Notes
    -----
    Immutable, and thus thread-safe.
    """

    files: tuple[DataFile, ...]
    record_format: RecordFormat
    columns: tuple[RawColumn, ...]
    unreadable: dict[str, str]
    chunk_files: NDArray[np.int32] = field(repr=False)
    chunk_places: NDArray[np.int64] = field(repr=False)
    starts_run: NDArray[np.bool_] = field(repr=False)
    first_records: NDArray[np.int64] = field(repr=False)

    @property
    def num_records(self) -> int:
        """Records of all files."""
        return int(self.first_records[-1])

    @property
    def num_chunks(self) -> int:
        """Chunks of all files."""
        return len(self.chunk_files)

    def chunk_of(self, record: int) -> int:
        """Return the number of the chunk that holds a record."""
        if not 0 <= record < self.num_records:
            raise ValueError(f"expected a record in [0, {self.num_records}), got {record}")
        return int(np.searchsorted(self.first_records, record, side="right")) - 1

    def file_of(self, chunk: int) -> DataFile:
        """Return the file of a chunk."""
        return self.files[int(self.chunk_files[chunk])]

    def place_of(self, chunk: int) -> ChunkRange:
        """Return the range of a chunk in its file."""
        start, stop = self.chunk_places[chunk].tolist()
        return ChunkRange(start, stop)

    def first_in_file(self, chunk: int) -> int:
        """Return the number of the first record of a chunk in its file, from 0."""
        first_chunk = int(np.searchsorted(self.chunk_files, self.chunk_files[chunk]))
        return int(self.first_records[chunk] - self.first_records[first_chunk])

    def place(self, record: int) -> tuple[str, int]:
        """Return the file and the row of a record, as messages show them.

        In delimited text the header is row 1, and empty lines do not count; in JSON lines the row is the line, from 1;
        in other files the first row is 0.
        """
        chunk = self.chunk_of(record)
        number = self.first_in_file(chunk) + record - int(self.first_records[chunk])
        return self.file_of(chunk).shown, self.record_format.first_row + number

    def digest(self) -> str:
        """Return 64 hexadecimal digits, which change if a file, its size or stamp, an option or a column does."""
        return hashlib.sha256(json.dumps(self._described(), sort_keys=True).encode()).hexdigest()

    def check_unchanged(self) -> None:
        """Raise InputError if a file has changed since the scan: another size or stamp, or gone.

        All such files are reported together.
        """
        faults: list[str] = []
        for file in self.files:
            try:
                check_unchanged(file)
            except InputError as error:
                faults += error.faults
        if faults:
            raise InputError(tuple(faults))

    def to_bytes(self) -> bytes:
        """Return the index as the content of a file, with a checksum."""
        arrays: dict[str, NDArray[Any]] = {
            "chunk_files": self.chunk_files,
            "chunk_places": self.chunk_places,
            "starts_run": self.starts_run,
            "first_records": self.first_records,
        }
        return seal(self._described(), arrays)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return the index from the result of `to_bytes`.

        Raises InputError if `content` is damaged, or of another version of psflow.
        """
        return unseal(content, "the record index", cls._made)

    @classmethod
    def _made(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        return cls(
            files=tuple(DataFile(*file) for file in described["files"]),
            record_format=RECORD_FORMATS[described["format"]](**described["options"]),
            columns=tuple(RawColumn(*column) for column in described["columns"]),
            unreadable=described["unreadable"],
            chunk_files=arrays["chunk_files"],
            chunk_places=arrays["chunk_places"],
            starts_run=arrays["starts_run"],
            first_records=arrays["first_records"],
        )

    def _described(self) -> dict[str, Any]:
        """Return everything but the chunks as plain data."""
        return {
            "files": [[file.url, file.size, file.stamp, file.folders] for file in self.files],
            "format": self.record_format.name,
            "options": asdict(self.record_format),
            "columns": [[column.name, column.type] for column in self.columns],
            "unreadable": self.unreadable,
        }
