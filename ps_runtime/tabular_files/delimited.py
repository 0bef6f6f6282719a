"""Delimited text, such as CSV and TSV: cells separated by one character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from psflow.ps_runtime.columns.raw import TYPES
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.base import RecordFormat
from psflow.ps_runtime.tabular_files.delimited_file import OpenDelimited
from psflow.ps_runtime.tabular_files.files import DataFile

DELIMITERS = ";\t|,"

NA_VALUES = ("NA", "N/A", "NaN", "nan", "null", "NULL")


@dataclass(frozen=True, kw_only=True)
class DelimitedText(RecordFormat):
    """Records as lines of cells: CSV, TSV. A cell in quotes may hold delimiters, line ends and doubled quotes.

    White space around a cell is ignored, but names in a header are as written, as in a DataFrame of pandas.
    Empty lines are not records, and a record with line ends in quotes is one row.
    """

    name: ClassVar[str] = "delimited"

    delimiter: str = ","
    usual_delimiter: Literal[",", "\t"] = ","
    column_names: Sequence[str] | None = None
    na_values: Sequence[str] = NA_VALUES
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        for option in ("na_values", "column_names"):
            value = getattr(self, option)
            if isinstance(value, str):  # a str is a sequence of str
                raise InputError((f"{option} is {value!r}: expected a list of texts",))
            if value is not None:
                object.__setattr__(self, option, tuple(value))
        super().__post_init__()

    def faults(self) -> list[str]:
        """Return a sentence for each invalid option."""
        faults = super().faults()
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0':
            faults.append(f"the delimiter is {self.delimiter!r}: expected one ASCII character, no quote, no line end")
        names = self.column_names
        if names is not None and (not names or len(set(names)) < len(names)):
            faults.append(f"column_names is {list(names)}: expected at least one name, each once")
        if not _has_bytes_of_ascii(self.encoding):
            faults.append(f"the encoding is {self.encoding!r}: expected utf-8, or one with a byte for each character")
        for column, raw in self.types.items():
            if "[" in raw:
                faults.append(f"the type of column {column!r} is {raw!r}: a text cell is one of {', '.join(TYPES)}")
        return faults

    @property
    def suffixes(self) -> tuple[str, ...]:  # type: ignore[override]
        """The suffixes of its file names, for any delimiter."""
        return (".tsv",) if self.usual_delimiter == "\t" else (".csv",)

    @property
    def first_row(self) -> int:
        """The number of the first record of a file in messages: the header is row 1."""
        return 2 if self.column_names is None else 1

    @property
    def row_note(self) -> str:
        """How rows are counted."""
        first = "the header" if self.column_names is None else "the first"
        return f"{first} is row 1; empty lines do not count"

    def open(self, file: DataFile) -> OpenDelimited:
        """Return the open file with its header read; see `RecordFormat.open`."""
        names = None if self.column_names is None else tuple(self.column_names)
        return OpenDelimited(file, self.delimiter, names, ("", *self.na_values), self.encoding)


def likely_delimiter(names: Sequence[str], read_with: str) -> str | None:
    """Return the probable delimiter of column names that were read as one; None if there is none.

    Examples
    --------
    >>> likely_delimiter(["age;job"], ","), likely_delimiter(["age", "job"], ",")
    (';', None)
    """
    if len(names) != 1:
        return None
    return next((mark for mark in DELIMITERS if mark in names[0] and mark != read_with), None)


def _has_bytes_of_ascii(encoding: str) -> bool:
    """Return whether no byte of another character looks like a quote, a delimiter or a line end."""
    try:
        name = codecs.lookup(encoding).name
        characters = bytes(range(256)).decode(encoding, "replace")
    except (LookupError, ValueError, AttributeError):
        return False
    return name == "utf-8" or (len(characters) == 256 and characters[:128] == bytes(range(128)).decode())
