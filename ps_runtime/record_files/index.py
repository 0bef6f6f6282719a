"""The record index: which records lie where in the files of one input."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.record_files.base import Place, RecordFormat
from psflow.ps_runtime.record_files.files import DataFile, check_unchanged
from psflow.ps_runtime.record_files.formats import RECORD_FORMATS

__all__ = ["RecordIndex"]

DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordIndex:
    """What a scan has found: each record of some files, by its number, in chunks that can be read alone.

    Parameters
    ----------
    files : tuple of DataFile
        In the order of their records; a file without records has no chunk.
    record_format : RecordFormat
        How they are read.
    columns : tuple of RawColumn
        What was scanned, and can be read.
    unreadable : mapping of str to str
        Other columns, of types that cannot be read: nested ones, say.
    chunk_files : (n,) array of int32
        The number of each chunk's file.
    chunk_places : (n, 2) array of int64
        Where each chunk lies in its file: start and stop, see `Place`.
    first_records : (n + 1,) array of int64
        The number of each chunk's first record, from 0; at the end the number of all records.

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

    def place_of(self, chunk: int) -> Place:
        """Return where a chunk lies in its file."""
        start, stop = self.chunk_places[chunk].tolist()
        return Place(start, stop)

    def first_in_file(self, chunk: int) -> int:
        """Return the number that the first record of a chunk has in its file, from 0."""
        first_chunk = int(np.searchsorted(self.chunk_files, self.chunk_files[chunk]))
        return int(self.first_records[chunk] - self.first_records[first_chunk])

    def place(self, record: int) -> tuple[str, int]:
        """Return the file of a record as people read it, and its row as people count them there.

        In delimited text the header is row 1, and empty lines do not count; of JSON lines it is the line, from 1; in
        other files the first row is 0.
        """
        chunk = self.chunk_of(record)
        number = self.first_in_file(chunk) + record - int(self.first_records[chunk])
        return self.file_of(chunk).shown, self.record_format.first_row + number

    def digest(self) -> str:
        """Return 64 hexadecimal digits, which change if a file, its size or stamp, an option or a column does."""
        return hashlib.sha256(self._described()).hexdigest()

    def check_unchanged(self) -> None:
        """Raise InputError if a file is not the one that was scanned: another size or stamp, or gone.

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
        """Return the index for a file: a checksum, then its arrays and a description as safetensors."""
        content: bytes = save(
            {
                "description": np.frombuffer(self._described(), np.uint8),
                "chunk_files": self.chunk_files,
                "chunk_places": self.chunk_places,
                "first_records": self.first_records,
            }
        )
        return hashlib.sha256(content).digest() + content

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Return what `to_bytes` has described.

        Raises
        ------
        InputError
            If `content` is damaged, or of another version of psflow.
        """
        checksum, rest = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        if hashlib.sha256(rest).digest() != checksum:
            raise InputError(("the record index is damaged: its checksum is another one; scan the input again",))
        try:
            arrays = load(rest)
            described = json.loads(arrays["description"].tobytes())
            return cls(
                files=tuple(DataFile(*file) for file in described["files"]),
                record_format=RECORD_FORMATS[described["format"]](**described["options"]),
                columns=tuple(RawColumn(*column) for column in described["columns"]),
                unreadable=described["unreadable"],
                chunk_files=arrays["chunk_files"],
                chunk_places=arrays["chunk_places"],
                first_records=arrays["first_records"],
            )
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            fault = (
                f"the record index is one of another version ({type(error).__name__}: {error}); scan the input again"
            )
            raise InputError((fault,)) from None

    def _described(self) -> bytes:
        """Return all but the chunks as JSON."""
        described = {
            "files": [[file.url, file.size, file.stamp] for file in self.files],
            "format": self.record_format.name,
            "options": asdict(self.record_format),
            "columns": [[column.name, column.type] for column in self.columns],
            "unreadable": self.unreadable,
        }
        return json.dumps(described, sort_keys=True).encode()
