"""Reads the first records of tabular files, from which a configuration is guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.flows.parameters.input import MODELS
from psflow.flows.parameters.parsing import parse_as
from psflow.ps_runtime.columns.near_numeric import near_numeric
from psflow.ps_runtime.columns.raw import RawColumn, is_list
from psflow.ps_runtime.config.files import Settings
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.invalid_cells import CountedCells, InvalidColumn, rows_with_invalid
from psflow.ps_runtime.data.record_formats import TabularFiles
from psflow.ps_runtime.errors import ConfigError, InputError, UsageError, did_you_mean
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.tabular_files.base import NAME_OF_COLUMN, RecordFormat
from psflow.ps_runtime.tabular_files.delimited import NA_VALUES, DelimitedText, likely_delimiter
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.listing import list_files
from psflow.ps_runtime.tabular_files.scan import Scan, column_names
from psflow.ps_runtime.tabular_files.text_cells import inferred_type

if TYPE_CHECKING:
    import pyarrow as pa

MARKS = ("?", "n/a", "N.A.", "n.a.", "#N/A", "<NA>")
"""Strings that mark missing values among numbers and among other strings."""
SIGNS = ("-", "--", ".")
"""Strings that mark missing values among numbers only."""
CANDIDATES = (*MARKS, *SIGNS)
MOST = 0.5
"""Fraction of the cells of a column above which a string is a value."""


def missing_markers(table: pa.Table, label: str) -> tuple[str, ...]:
    """Return the strings that mark missing values in all columns, in addition to those of psflow.

    The ``na_values`` of an input apply to all of its columns, so a string that is a label or a value of any column is
    excluded.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    candidates = pa.array(CANDIDATES)
    markers: set[str] = set()
    values: set[str] = set()
    for name in table.column_names:
        cells = table.column(name)
        words = set(pc.unique(cells.filter(pc.is_in(cells, candidates))).to_pylist())
        if words:
            marks = set() if name == label else _marks(cells) & words
            markers |= marks
            values |= words - marks
    return tuple(word for word in CANDIDATES if word in markers - values)


def _marks(cells: pa.ChunkedArray) -> set[str]:
    """Return the candidates that mark missing values in a column, judged by its other values."""
    import pyarrow as pa
    from pyarrow import compute as pc

    is_candidate = pc.is_in(cells, pa.array(CANDIDATES))
    others = cells.filter(pc.invert(pc.is_in(cells, pa.array([*CANDIDATES, *NA_VALUES, "", None], pa.string()))))
    if not len(others):
        return set()
    is_rare = pc.sum(is_candidate).as_py() <= MOST * len(cells)
    if inferred_type(others) != "string":
        return {*MARKS, *SIGNS} if is_rare else {*MARKS}
    has_letters = pc.all(pc.match_substring_regex(others, r"[\pL\pN]")).as_py()
    return {*MARKS} if is_rare and has_letters else set()


MAX_RECORDS = 100_000
"""Limit of records that are read."""
MAX_BYTES = 2**28
"""Limit of their size in memory."""
RARE = 0.01
"""Fraction of the cells of a column up to which cells of another type are invalid, and their records dropped."""
TABULAR_FORMATS = {name: kind for name, kind in FORMATS.items() if issubclass(kind, TabularFiles)}

READING = ("delimiter", "column_names", "na_values", "encoding", "num_features", "zero_based")
"""Keys of inputs for reading their files."""
LEADING_ZERO = r"^0[0-9]+$"


@dataclass(frozen=True)
class RecordSample:
    """The first records of tabular files, and how the files are read."""

    path: str
    format_name: str
    table: pa.Table
    columns: tuple[RawColumn, ...]
    unreadable: Mapping[str, str]
    num_records: int
    record_format: RecordFormat
    num_files: int
    reading: Mapping[str, Any] = field(default_factory=dict)
    set_types: Mapping[str, str] = field(default_factory=dict)
    missing_markers: tuple[str, ...] = ()
    missing_labels: tuple[str, ...] = ()
    as_written: frozenset[str] = field(default_factory=frozenset)
    mixed: Mapping[str, InvalidColumn] = field(default_factory=dict)
    invalid: tuple[InvalidColumn, ...] = ()
    numbers: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def is_all(self) -> bool:
        """Whether the sample has all records of the files."""
        return bool(self.table.num_rows == self.num_records)

    @property
    def seen(self) -> str:
        """Suffix of a statement about a part of the records; else empty."""
        return "" if self.is_all else f" in the first {self.table.num_rows:,} records"

    def place(self, record: int) -> str:
        """Return the place of a record for display."""
        return _place(int(self.numbers[record]), self.num_files, self.record_format)


def read_sample(path: str, format_name: str | None, label: str, stated: Settings) -> RecordSample:
    """Read the first records of some files, at most `MAX_RECORDS`.

    Raises UsageError if the format is unknown, or the files cannot be read or have no column names.
    """
    name = _format_of(path, format_name)
    data = _described(name, path, stated)
    record_format, types, most = data.record_format(), data.types, data.max_columns
    set_types = {column: options.type for column, options in data.columns.items() if options.type is not None}
    reading = {key: value for key, value in stated.values.items() if key != "columns"}
    files = list_files(path, record_format.suffixes)
    if not isinstance(record_format, DelimitedText):
        return replace(_read(path, name, files, record_format, most), reading=reading, set_types=set_types)
    if "delimiter" not in reading and (delimiter := _delimiter(files, record_format, most)) is not None:
        record_format, reading = replace(record_format, delimiter=delimiter), {"delimiter": delimiter, **reading}
    names = column_names(files, replace(record_format, types={}), most)
    if record_format.column_names is None:
        _check_header(files[0], names, label)
    written = _read(path, name, files, replace(record_format, types=dict.fromkeys(names, "string"), na_values=()), most)
    markers = () if "na_values" in reading else missing_markers(written.table, label)
    if markers:
        record_format = replace(record_format, na_values=(*markers, *NA_VALUES))
        reading["na_values"] = [*markers, *NA_VALUES]
    as_written = frozenset(
        column for column in names if column not in set_types and _has_leading_zeros(written.table, column)
    )
    zeros = dict.fromkeys(as_written, "string")
    as_words = {**types, **zeros}
    read = _read(path, name, files, replace(record_format, types=as_words), most)
    mixed = {column.name: column for column in read.invalid if _is_mixed(column)}
    if mixed:
        as_words |= dict.fromkeys(mixed, "string")
        read = _read(path, name, files, replace(record_format, types=as_words), most)
    return replace(
        read,
        reading=reading,
        set_types={**set_types, **zeros, **dict.fromkeys(mixed, "string")},
        missing_markers=markers,
        missing_labels=_missing_labels(written.table, label, record_format.na_values),
        as_written=as_written,
        mixed=mixed,
    )


def _is_mixed(column: InvalidColumn) -> bool:
    """Return whether cells of another type than their column are values: many, or numbers in another notation."""
    import pyarrow as pa

    is_many = column.num_cells > max(1, RARE * column.num_values)
    is_header = column.first.endswith(NAME_OF_COLUMN)
    return not is_header and (is_many or bool(near_numeric(pa.array([column.first.strip("'")]))))


def _described(name: str, path: str, stated: Settings) -> TabularFiles:
    """Return the files with their stated options.

    Raises ConfigError if an option is unknown for such files, or has a wrong value.
    """
    known = [key for key in (*READING, "columns") if key in MODELS[name].model_fields]
    columns = stated.values.get("columns", {})
    options = columns.values() if isinstance(columns, Mapping) else ()
    keys = [*stated.values, *(f"columns.COLUMN.{key}" for keys in options if isinstance(keys, Mapping) for key in keys)]
    strange = [key for key in keys if key not in known and key != "columns.COLUMN.type"]
    if strange:
        expected = ", ".join([*known[:-1], "columns.COLUMN.type"])
        advice = "set other keys in the file that init writes"
        raise ConfigError(tuple(f"command line: {key}: expected {expected} of {name}; {advice}" for key in strange))
    files: TabularFiles = parse_as(
        MODELS[name], {**stated.values, "format": name, "path": path}, stated.origins
    ).build()
    return files


def _format_of(path: str, name: str | None) -> str:
    if name is not None:
        if name not in TABULAR_FORMATS:
            known = ", ".join(TABULAR_FORMATS)
            near = did_you_mean(name, TABULAR_FORMATS)
            raise UsageError((f"--format is {name!r}, expected a format of records with columns: {known}{near}",))
        return name
    found = [name for name, kind in TABULAR_FORMATS.items() if path.partition("?")[0].lower().endswith(kind.suffixes)]
    found = found or [name for name, kind in TABULAR_FORMATS.items() if _has_files(path, kind)]
    if len(found) == 1:
        return found[0]
    list_files(path, "")  # raises if there are no files
    what = f"files of several formats, {' and '.join(found)}" if found else "no files with the suffix of a format"
    raise UsageError((f"{shown_path(path)} has {what}; choose a format with --format: {', '.join(TABULAR_FORMATS)}",))


def _has_files(path: str, kind: type[TabularFiles]) -> bool:
    try:
        files = list_files(path, kind.suffixes)
    except InputError:
        return False
    return all(file.url.lower().endswith(kind.suffixes) for file in files)


def _read(
    path: str, name: str, files: Sequence[DataFile], record_format: RecordFormat, max_columns: int
) -> RecordSample:
    """Read the first records in `record_format`."""
    import pyarrow as pa

    scan = Scan(files, record_format, max_columns=max_columns, allows_invalid=True)
    counted = CountedCells()
    tables: list[pa.Table] = []
    is_valid: list[NDArray[np.bool_]] = []
    num_records = num_bytes = done_bytes = 0
    for chunk in scan:
        counted.add(chunk.table, chunk.invalid)
        is_valid.append(~rows_with_invalid(chunk.invalid, chunk.table.num_rows))
        tables.append(chunk.table)
        num_records += chunk.table.num_rows
        num_bytes += chunk.table.nbytes
        done_bytes = chunk.done_bytes
        if num_records >= MAX_RECORDS or num_bytes >= MAX_BYTES:
            total = round(num_records * max(1.0, scan.num_bytes / done_bytes))
            break
    else:
        total = num_records
    numbers = np.flatnonzero(np.concatenate(is_valid)[:MAX_RECORDS])
    table = pa.concat_tables(tables, promote_options="permissive").take(numbers)
    columns = tuple(column for column in scan.columns if not is_list(column))
    left_out = scan.unreadable | {column.name: column.type for column in scan.columns if is_list(column)}
    invalid = counted.columns(scan.columns, lambda record: _place(record, len(files), record_format))
    read = RecordSample(path, name, table, columns, left_out, total - counted.num_rows, record_format, len(files))
    return replace(read, invalid=invalid, numbers=numbers)


def _place(record: int, num_files: int, record_format: RecordFormat) -> str:
    """Return the place of a record of the files for display; `record` counts from 0."""
    if num_files > 1:
        return f"record {record + 1:,} of {num_files} files in order"
    return f"row {record_format.first_row + record:,} ({record_format.row_note})"


def _delimiter(files: Sequence[DataFile], record_format: DelimitedText, max_columns: int) -> str | None:
    """Return the delimiter of cells; None if it is the default."""
    return likely_delimiter(column_names(files, record_format, max_columns), record_format.delimiter)


def _check_header(file: DataFile, names: Sequence[str], label: str) -> None:
    """Refuse a first row that looks like a record: it has a number, and not the label."""
    numbers = [name for name in names if re.fullmatch(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?", name)]
    if numbers and label not in names:
        what = f"expected the names of the columns in the first row, with the label {label!r}, got {numbers[0]!r}"
        near = did_you_mean(label, names)
        advice = "add a header row, or pass column_names=[...] after the files"
        raise UsageError((f"{file.shown}: {what}{near}; {advice}",))


def _missing_labels(table: pa.Table, label: str, na_values: Sequence[str]) -> tuple[str, ...]:
    from pyarrow import compute as pc

    words = frozenset(pc.unique(table.column(label)).to_pylist()) if label in table.column_names else frozenset()
    return tuple(word for word in na_values if word in words)


def _has_leading_zeros(table: pa.Table, name: str) -> bool:
    from pyarrow import compute as pc

    return bool(pc.any(pc.match_substring_regex(table.column(name), LEADING_ZERO)).as_py())
