"""Writes a part of an output atomically: the file appears completely or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self, assert_never

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.files import begin_to_store, storing
from psflow.ps_runtime.scratch import scratch_directory
from psflow.tasks.prediction.options import OutputFormat

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_BYTES = 16 * 1024**2
"""Bytes in memory before a write: a row group of Parquet."""
WRITE_BACK_BYTES = 8 * 1024**2
"""Bytes in the page cache before writeback is started."""


class HashedStream:
    """A file for sequential writing, with the checksum of its content.

    Writeback starts early, so that the wait at the end is short.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._hash = stream, hashlib.sha256()
        self.num_bytes = self._num_begun = 0
        self.closed = False

    @property
    def sha256(self) -> str:
        """Checksum of the bytes written so far, in hexadecimal digits."""
        return self._hash.hexdigest()

    def write(self, data: Any) -> int:
        """Append bytes."""
        view = memoryview(data)
        self._stream.write(view)
        self._hash.update(view)
        self.num_bytes += view.nbytes
        if self.num_bytes - self._num_begun >= WRITE_BACK_BYTES:
            begin_to_store(self._stream, self._num_begun, self.num_bytes - self._num_begun)
            self._num_begun = self.num_bytes
        return view.nbytes

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self.num_bytes

    def flush(self) -> None:
        """Do nothing: the owner of the file flushes it."""

    def close(self) -> None:
        """Do nothing: the owner of the file closes it."""


@contextmanager
def writing(files: FileStore, name: str, *, syncs_directory: bool = True) -> Iterator[HashedStream]:
    """Give a stream whose bytes become the file `name` at the end of the block, unless it fails.

    In a local directory they go to a temporary file beside it, and are durable; with `syncs_directory` its name is,
    too. Elsewhere they go to a local temporary file, which is then sent in one piece: as atomic as the store's own way
    to put a file.

    Raises StorageError for example if the local disk is full.
    """
    if files.is_local:
        with files.replacing(name, syncs_directory=syncs_directory) as stream:
            yield HashedStream(stream)
        return
    with scratch_directory() as directory:
        path = os.path.join(directory, "part")
        with storing(path), open(path, "xb") as stream:
            yield HashedStream(stream)
        files.send(path, name)


def repeating(schema: pa.Schema) -> list[str]:
    """Return the columns for dictionary encoding in Parquet: all but floats, for which it costs most.

    Encoding hashes every value of a row group, and floats hardly repeat.
    """
    import pyarrow as pa

    return [
        field.name
        for field in schema
        if not pa.types.is_floating(field.type) and not pa.types.is_fixed_size_list(field.type)
    ]


@dataclass
class PartWriter:
    """Writes tables of one schema as Parquet or CSV; buffers them until a row group is full."""

    stream: HashedStream
    schema: pa.Schema
    output_format: OutputFormat

    def __enter__(self) -> Self:
        self.num_rows = 0
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._writer = self._opened()
        return self

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table."""
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        self.num_rows += table.num_rows
        if self._waiting_bytes >= GROUP_BYTES:
            self._write_group()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            with contextlib.suppress(Exception):  # the first error is raised, and the file is removed
                self._writer.close()
            return
        if self._waiting:
            self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        import pyarrow as pa

        self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_bytes = [], 0

    def _opened(self) -> Any:
        match self.output_format:
            case "parquet":
                from pyarrow import parquet

                return parquet.ParquetWriter(self.stream, self.schema, use_dictionary=repeating(self.schema))
            case "csv":
                from pyarrow import csv

                return csv.CSVWriter(self.stream, self.schema)
            case _:
                assert_never(self.output_format)
