"""The first records of some files, of which a configuration is guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from psflow.flows.drafting.blank_words import blank_words
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.record_formats import Csv, RecordFiles
from psflow.ps_runtime.errors import InputError, UsageError, did_you_mean
from psflow.ps_runtime.record_files.base import RecordFormat
from psflow.ps_runtime.record_files.delimited import NA_VALUES, DelimitedText
from psflow.ps_runtime.record_files.files import DataFile
from psflow.ps_runtime.record_files.listing import list_files
from psflow.ps_runtime.record_files.scan import Scan
from psflow.ps_runtime.redaction import shown_path

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAX_RECORDS", "Sample", "read_sample"]

MAX_RECORDS = 100_000
"""That are looked at."""
MAX_BYTES = 2**28
"""Of these in memory."""
RECORD_FORMATS = {name: kind for name, kind in FORMATS.items() if issubclass(kind, RecordFiles)}

DELIMITERS = ";\t|"
LEADING_ZERO = r"^0[0-9]+$"


@dataclass(frozen=True)
class Sample:
    """Some records, and how their files are read.

    Parameters
    ----------
    path, format_name : str
        As a configuration has them.
    table : pyarrow.Table
        The records.
    columns : tuple of RawColumn
        Those of the table.
    unreadable : mapping of str to str
        Further columns, and what they are.
    num_records : int
        Of all files, estimated by bytes where there are more than in the table.
    delimiter : str or None
        Where it is not the usual one.
    blank_words : tuple of str
        Cells that are blank, beside those that are anyway.
    blank_labels : tuple of str
        Words of the label that are blank.
    as_written : frozenset of str
        Columns whose numbers are names, as they have leading zeros.
    """

    path: str
    format_name: str
    table: pa.Table
    columns: tuple[RawColumn, ...]
    unreadable: Mapping[str, str]
    num_records: int
    delimiter: str | None = None
    blank_words: tuple[str, ...] = ()
    blank_labels: tuple[str, ...] = ()
    as_written: frozenset[str] = field(default_factory=frozenset)

    @property
    def is_all(self) -> bool:
        """Whether these are all records of the files."""
        return bool(self.table.num_rows == self.num_records)

    @property
    def seen(self) -> str:
        """Where something was seen, if these are not all records; else empty."""
        return "" if self.is_all else f" in the first {self.table.num_rows:,} records"

    @property
    def na_values(self) -> tuple[str, ...] | None:
        """The key of the input, None where its default will do."""
        return (*self.blank_words, *NA_VALUES) if self.blank_words else None


def read_sample(path: str, format_name: str | None, label: str) -> Sample:
    """Read the first records of some files, at most `MAX_RECORDS`.

    Parameters
    ----------
    path : str
        A file, folder, glob or URL.
    format_name : str or None
        The name of a format of record files; None: as the suffixes of the files say.
    label : str
        The column of the labels, whose words are never blank.

    Raises
    ------
    UsageError
        If the format is unknown, the files cannot be read, or have no names of columns.
    """
    name = _format_of(path, format_name)
    kind = RECORD_FORMATS[name]
    data = kind(path=path)
    record_format = data.record_format()
    files = list_files(path, record_format.suffixes)
    if not isinstance(record_format, DelimitedText):
        return _read(path, name, files, record_format)
    assert issubclass(kind, Csv)
    delimiter = _delimiter(files, record_format)
    if delimiter is not None:
        record_format = replace(record_format, delimiter=delimiter)
    names = [column.name for column in Scan(files, record_format).columns]
    _check_header(files[0], names)
    written = _read(path, name, files, replace(record_format, types=dict.fromkeys(names, "string"), na_values=()))
    blank = blank_words(written.table, label)
    blank_labels = _blank_labels(written.table, label)
    as_written = frozenset(column for column in names if _has_leading_zeros(written.table, column))
    read = replace(record_format, types=dict.fromkeys(as_written, "string"), na_values=(*blank, *NA_VALUES))
    found = _read(path, name, files, read)
    return replace(found, delimiter=delimiter, blank_words=blank, blank_labels=blank_labels, as_written=as_written)


def _format_of(path: str, name: str | None) -> str:
    if name is not None:
        if name not in RECORD_FORMATS:
            known = ", ".join(RECORD_FORMATS)
            near = did_you_mean(name, RECORD_FORMATS)
            raise UsageError((f"--format is {name!r}, expected a format of records with columns: {known}{near}",))
        return name
    found = [name for name, kind in RECORD_FORMATS.items() if path.partition("?")[0].endswith(kind.suffixes)]
    found = found or [name for name, kind in RECORD_FORMATS.items() if _has_files(path, kind)]
    if len(found) == 1:
        return found[0]
    list_files(path, "")  # says if there is nothing at all
    what = f"files of several formats, {' and '.join(found)}" if found else "no files with the suffix of a format"
    raise UsageError((f"{shown_path(path)} has {what}: name one with --format: {', '.join(RECORD_FORMATS)}",))


def _has_files(path: str, kind: type[RecordFiles]) -> bool:
    try:
        files = list_files(path, kind.suffixes)
    except InputError:
        return False
    return all(file.url.endswith(kind.suffixes) for file in files)


def _read(path: str, name: str, files: Sequence[DataFile], record_format: RecordFormat) -> Sample:
    """Read the first records as `record_format` says."""
    import pyarrow as pa

    scan = Scan(files, record_format)
    tables: list[pa.Table] = []
    num_records = num_bytes = done_bytes = 0
    for chunk in scan:
        tables.append(chunk.table)
        num_records += chunk.table.num_rows
        num_bytes += chunk.table.nbytes
        done_bytes = chunk.done_bytes
        if num_records >= MAX_RECORDS or num_bytes >= MAX_BYTES:
            total = round(num_records * max(1.0, scan.num_bytes / done_bytes))
            break
    else:
        total = num_records
    table = pa.concat_tables(tables, promote_options="permissive").slice(0, MAX_RECORDS)
    return Sample(path, name, table, scan.columns, scan.unreadable, total)


def _delimiter(files: Sequence[DataFile], record_format: DelimitedText) -> str | None:
    """Return what separates cells, if the usual delimiter does not; None if it does."""
    names = [column.name for column in Scan(files, record_format).columns]
    if len(names) > 1:
        return None
    return next((delimiter for delimiter in DELIMITERS if delimiter in names[0]), None)


def _check_header(file: DataFile, names: Sequence[str]) -> None:
    """Refuse a first row that looks like a record."""
    numbers = [name for name in names if re.fullmatch(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?", name)]
    if numbers:
        raise UsageError(
            (f"{file.shown}: expected the names of the columns in the first row, got {numbers[0]!r}; add a first row",)
        )


def _blank_labels(table: pa.Table, label: str) -> tuple[str, ...]:
    from pyarrow import compute as pc

    words = frozenset(pc.unique(table.column(label)).to_pylist()) if label in table.column_names else frozenset()
    return tuple(word for word in NA_VALUES if word in words)


def _has_leading_zeros(table: pa.Table, name: str) -> bool:
    from pyarrow import compute as pc

    return bool(pc.any(pc.match_substring_regex(table.column(name), LEADING_ZERO)).as_py())
