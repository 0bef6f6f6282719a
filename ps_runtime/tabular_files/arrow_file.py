"""Reads Arrow IPC files, which include Feather files since version 2: a chunk is a record batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from psflow.ps_runtime.tabular_files.base import ChunkRange, OnInvalid, OpenRecords, RecordError, RecordFormat
from psflow.ps_runtime.tabular_files.files import DataFile, open_file, read_bytes
from psflow.ps_runtime.tabular_files.stored_columns import as_raw_columns, check_names, stored_types, whole_file

if TYPE_CHECKING:
    import pyarrow as pa

STREAM = b"\xff\xff\xff\xff"
FEATHER_1 = b"FEA1"


@dataclass(frozen=True, kw_only=True)
class ArrowFile(RecordFormat):
    """Records in Arrow IPC files; `types` reads some columns as another type. A record batch is read as a whole."""

    name: ClassVar[str] = "arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc")

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
        return OpenArrow(file, self.types)


class OpenArrow(OpenRecords):
    """An open Arrow IPC file."""

    def __init__(self, file: DataFile, set_types: Mapping[str, str]) -> None:
        import pyarrow as pa

        self.file, self._set_types = file, set_types
        self._opened = open_file(file)
        try:
            _check_form(read_bytes(file, self._opened, 0, min(4, file.size)))
            with whole_file("Arrow"):
                self._reader = pa.ipc.open_file(self._opened)
            check_names(self._reader.schema)
        except BaseException:
            self.close()
            raise
        self._schema = self._reader.schema
        self._selected: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns, in order."""
        return tuple(self._schema.names)

    def types(self, names: Sequence[str]) -> dict[str, str]:
        """Return the types of some columns; see `OpenRecords.types`."""
        return stored_types(self._schema, names)

    def places(self, chunk_bytes: int) -> Iterator[ChunkRange]:
        """Return the number of each record batch; see `OpenRecords.places`."""
        for number in range(self._reader.num_record_batches):
            yield ChunkRange(number, number + 1)

    def read(self, place: ChunkRange, types: Mapping[str, str], on_invalid: OnInvalid | None = None) -> pa.Table:
        """Return the records of a chunk; see `OpenRecords.read`."""
        import pyarrow as pa

        with whole_file("Arrow"):
            if self._selected != tuple(types):
                self._selected = tuple(types)
                fields = [self._schema.get_field_index(name) for name in types]
                options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
                self._reader = pa.ipc.open_file(self._opened, options=options)
            table = pa.Table.from_batches([self._reader.get_batch(place.start)])
            table.validate(full=True)  # a wrong offset would read beyond the buffers
        return as_raw_columns(table, types, self._set_types, on_invalid)

    def count(self, place: ChunkRange) -> int:
        """Return how many records a chunk has; see `OpenRecords.count`."""
        with whole_file("Arrow"):
            return int(self._reader.get_batch(place.start).num_rows)

    def parts(self, place: ChunkRange) -> tuple[ChunkRange, ...]:
        """Return none: a record batch is read as a whole."""
        return ()

    def text(self, place: ChunkRange) -> str:
        """Return an empty text: the file is not text."""
        return ""

    def check_types(self, types: Mapping[str, str]) -> None:
        """Check the types of columns; see `OpenRecords.check_types`."""
        as_raw_columns(self._schema.empty_table(), types, self._set_types)

    def bytes_up_to(self, place: ChunkRange) -> int:
        """Return about how many bytes of the file have been read after the chunk."""
        return self.file.size * place.stop // int(self._reader.num_record_batches)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._opened.close()


def _check_form(head: bytes) -> None:
    """Raise RecordError if a file has a similar but unsupported form."""
    if head == STREAM:
        raise RecordError("the file has Arrow's stream format: expected a file as pyarrow.ipc.new_file writes it")
    if head == FEATHER_1:
        raise RecordError("the file is Feather version 1: expected version 2; convert it")
