"""What a format of tabular files is: options that say how its files are read, and a file of it that is open."""

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
"""About the text of one chunk."""

LARGEST_EXACT = 2**53
"""A float64 holds all whole numbers up to this one."""

NAME_OF_COLUMN = ", the name of the column"
"""Behind an invalid value that is so, in a row that repeats the header."""

NUMBER = "number"
"""A name for float64, for those who set the type of a column."""


class ChunkRange(NamedTuple):
    """Where a chunk lies in its file: from `start` up to `stop`.

    These are bytes of text, rows of a Parquet file, record batches of an Arrow file.
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
"""Takes values that are not of the type of their column; without it, the first such value is a RecordError."""


@dataclass(eq=False)
class RecordError(Exception):
    """A record that cannot be read. Whoever knows the file and its first record makes an InputError of it."""

    what: str
    record: int | None = None
    column: str | None = None
    widens: bool = False

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, kw_only=True)
class RecordFormat(ABC):
    """How the files of one input are read. Its fields are plain values: they are kept with a record index.

    Raises
    ------
    InputError
        If an option is out of its range; all faults are reported together.
    """

    name: ClassVar[str]
    """What a record index calls the format."""
    suffixes: ClassVar[tuple[str, ...]]
    """How the names of its files end."""

    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        types = {column: "float64" if raw == NUMBER else raw for column, raw in self.types.items()}
        object.__setattr__(self, "types", types)
        if faults := self.faults():
            raise InputError(tuple(faults))

    def faults(self) -> list[str]:
        """Return a sentence for each option that is wrong."""
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
        """The number that people give the first record of a file."""

    @property
    @abstractmethod
    def row_note(self) -> str:
        """What people need to know to find a row by its number."""

    def error(self, file: DataFile, first_record: int, fault: RecordError) -> InputError:
        """Return what people read of a fault in a chunk that begins with a record of the file."""
        if fault.record is None:
            return InputError((f"{file.shown}: {fault.what}",))
        row = self.first_row + first_record + fault.record
        return InputError((f"{file.shown}, row {row} ({self.row_note}): {fault.what}",))

    @abstractmethod
    def open(self, file: DataFile) -> OpenRecords:
        """Return a file, open, for reading its records.

        Raises
        ------
        InputError, RecordError
            If it cannot be read, or is no file of this format.
        """


class OpenRecords(ABC):
    """A file of records that is open: a context manager, which closes it. Not thread-safe."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The names of its columns, in their order."""

    def lacking(self, names: Sequence[str]) -> list[str]:
        """Return which of these columns it does not have."""
        there = frozenset(self.names)
        return [name for name in names if name not in there]

    @abstractmethod
    def types(self, names: Sequence[str]) -> dict[str, str]:
        """Return the types of some columns; of one that cannot be read, a text that says what it is.

        Raises
        ------
        RecordError
            If they have to be inferred, and a record cannot be read.
        """

    @abstractmethod
    def places(self, chunk_bytes: int) -> Iterator[ChunkRange]:
        """Return where each chunk lies, in order; one of text has about `chunk_bytes`, and at least a record.

        Raises
        ------
        RecordError
            If a record has no end; its number counts from the end of the place before.
        """

    def starts_run(self, place: ChunkRange) -> bool:
        """Return whether a chunk can be read alone at its own price, not only behind the one before it."""
        return True

    @abstractmethod
    def read(self, place: ChunkRange, types: Mapping[str, str], on_invalid: OnInvalid | None = None) -> pa.Table:
        """Return the records of a chunk: these columns, of these types, in this order.

        Raises
        ------
        RecordError
            If a record cannot be read, a column would have to widen, or there is no `on_invalid` for a value that
            does not have the type of its column.
        """

    def size_fault(self, names: Sequence[str]) -> str | None:
        """Say why these columns take more memory than those of a file of this size may; None: they do not."""
        return None

    @abstractmethod
    def count(self, place: ChunkRange) -> int:
        """Return how many records a chunk has, those that cannot be read among them; no value is looked at.

        Raises
        ------
        RecordError
            If it cannot be told, because a byte is none of text, say.
        """

    @abstractmethod
    def parts(self, place: ChunkRange) -> tuple[ChunkRange, ...]:
        """Return the two places that a chunk of text is made of; none if it is one record, or no text."""

    @abstractmethod
    def text(self, place: ChunkRange) -> str:
        """Return the text of a chunk, whatever it is; empty if it is none."""

    @abstractmethod
    def check_types(self, types: Mapping[str, str]) -> None:
        """Look whether the file stores these columns as types that may be read so; text stores none.

        Raises
        ------
        RecordError
            Of the first column that it does not.
        """

    @abstractmethod
    def bytes_up_to(self, place: ChunkRange) -> int:
        """Return about how many bytes of the file are read when the chunk has been read."""

    @abstractmethod
    def close(self) -> None:
        """Close the file. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
