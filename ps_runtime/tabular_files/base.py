"""Base classes of the formats of tabular files: options for reading files, and an open file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.raw import TYPES
from psflow.ps_runtime.columns.raw_types import is_raw_type
from psflow.ps_runtime.errors import InputError, did_you_mean
from psflow.ps_runtime.tabular_files.files import DataFile

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES = 4 * 1024**2
"""About the size of the text of one chunk."""

LARGEST_EXACT = 2**53
"""float64 holds every whole number up to this one."""

NAME_OF_COLUMN = ", the name of the column"
"""Appended to an invalid value that repeats the header."""

NUMBER = "number"
"""A name for float64 in types set by users."""


class ChunkRange(NamedTuple):
    """The range of a chunk in its file, from `start` up to `stop`.

    The units are bytes of text, rows of a Parquet file, record batches of an Arrow file.
    """

    start: int
    stop: int


@dataclass(frozen=True, eq=False, slots=True)
class InvalidValues:
    """Values of a column in a chunk that are not of its type, and are read as null."""

    column: str
    rows: NDArray[np.int64]
    shown: tuple[str, ...]


OnInvalid = Callable[[InvalidValues], object]
"""Receives values that are not of the type of their column; without it, the first such value is a RecordError."""


@dataclass(eq=False)
class RecordError(Exception):
    """A record that cannot be read; `RecordFormat.error` adds the file and makes it an InputError."""

    what: str
    record: int | None = None
    column: str | None = None
    widens: bool = False

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, kw_only=True)
class RecordFormat(ABC):
    """Options for reading the files of one input. Its fields are plain values, stored in a record index.

    Raises InputError if an option is out of range; all faults are reported together.
    """

    name: ClassVar[str]
    """The name of the format in a record index."""
    suffixes: ClassVar[tuple[str, ...]]
    """The suffixes of its file names."""

    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        types = {column: "float64" if raw == NUMBER else raw for column, raw in self.types.items()}
        object.__setattr__(self, "types", types)
        if faults := self.faults():
            raise InputError(tuple(faults))

    def faults(self) -> list[str]:
        """Return a sentence for each invalid option."""
        known = (*TYPES, NUMBER)
        return [
            f"the type of column {column!r} is {raw!r}: expected one of {', '.join(known)}, or a number type with a "
            f"length, such as float32[64]{did_you_mean(raw, known)}"
            for column, raw in self.types.items()
            if not is_raw_type(raw)
        ]

    @property
    @abstractmethod
    def first_row(self) -> int:
        """The number of the first record of a file in messages."""

    @property
    @abstractmethod
    def row_note(self) -> str:
        """How rows are counted."""

    def error(self, file: DataFile, first_record: int, fault: RecordError) -> InputError:
        """Return the error for a fault in a chunk that begins with the given record of the file."""
        if fault.record is None:
            return InputError((f"{file.shown}: {fault.what}",))
        row = self.first_row + first_record + fault.record
        return InputError((f"{file.shown}, row {row} ({self.row_note}): {fault.what}",))

    @abstractmethod
    def open(self, file: DataFile) -> OpenRecords:
        """Return the open file, for reading its records.

        Raises InputError or RecordError if it cannot be read, or is not a file of this format.
        """


class OpenRecords(ABC):
    """An open file of records: a context manager, which closes it. Not thread-safe."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of its columns, in order."""

    def lacking(self, names: Sequence[str]) -> list[str]:
        """Return the columns that it lacks."""
        there = frozenset(self.names)
        return [name for name in names if name not in there]

    @abstractmethod
    def types(self, names: Sequence[str]) -> dict[str, str]:
        """Return the types of some columns; an unreadable one has a text that describes it.

        Raises RecordError if types have to be inferred, and a record cannot be read.
        """

    @abstractmethod
    def places(self, chunk_bytes: int) -> Iterator[ChunkRange]:
        """Yield the range of each chunk, in order; a chunk of text has about `chunk_bytes`, and at least one record.

        Raises RecordError if a record has no end; its number counts from the end of the range before.
        """

    def starts_run(self, place: ChunkRange) -> bool:
        """Return whether a chunk can be read without decoding the one before it."""
        return True

    @abstractmethod
    def read(self, place: ChunkRange, types: Mapping[str, str], on_invalid: OnInvalid | None = None) -> pa.Table:
        """Return the records of a chunk with these columns, types and order.

        Raises RecordError if a record cannot be read, a column would have to widen, or there is no `on_invalid` for a
        value that does not have the type of its column.
        """

    def size_fault(self, names: Sequence[str]) -> str | None:
        """Return a fault if these columns take more memory than a file of this size allows; else None."""
        return None

    @abstractmethod
    def count(self, place: ChunkRange) -> int:
        """Return the number of records of a chunk, including unreadable ones; values are not read.

        Raises RecordError if the number is unknown, for example because a byte is not valid text.
        """

    @abstractmethod
    def parts(self, place: ChunkRange) -> tuple[ChunkRange, ...]:
        """Return the two ranges into which a chunk of text is divided; none if it is one record, or not text."""

    @abstractmethod
    def text(self, place: ChunkRange) -> str:
        """Return the text of a chunk; empty if the file is not text."""

    @abstractmethod
    def check_types(self, types: Mapping[str, str]) -> None:
        """Check that the file stores these columns as types that may be read as given; text stores no types.

        Raises RecordError for the first column that it does not.
        """

    @abstractmethod
    def bytes_up_to(self, place: ChunkRange) -> int:
        """Return about how many bytes of the file have been read after the chunk."""

    @abstractmethod
    def close(self) -> None:
        """Close the file. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
