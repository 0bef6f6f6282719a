"""Tables of numbers as text: CSV, TSV."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.dataset import MATRIX, Dataset
from psflow.ps_runtime.data.files import chosen_names, left_over, one_batch, read_file
from psflow.ps_runtime.data.non_finite import Source
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.redaction import shown_path

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Csv", "Tsv", "read_csv"]

MAX_HEADER_BYTES = 1024 * 1024
BLOCK_BYTES = 2 * MAX_HEADER_BYTES
"""pyarrow refuses a row longer than a block."""

BAD_CELL = re.compile(r"In CSV column #(\d+): Row #(\d+): .*invalid value '(.*)'", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Csv(Format):
    """A table of numbers as text, whose first row names its columns; separated by commas, or tabs in a .tsv file."""

    suffixes: ClassVar[tuple[str, ...]] = (".csv",)
    delimiter: ClassVar[str | None] = None

    path: Annotated[str | os.PathLike[str], Key("File or fsspec URL.")]
    label: Annotated[str | None, Key("Column of the labels; null: there are none.")] = None
    features: Annotated[Sequence[str] | None, Key("Columns that are features; null: all but the label.")] = None

    def read(self) -> Dataset:
        """Return the table; see `read_csv`."""
        return read_csv(self.path, self.label, self.features, self.delimiter)

    def selecting(self, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return the table with the columns that the model reads alone; see `Format.selecting`."""
        return replace(self, features=tuple(columns)) if columns and self.features is None else self

    @classmethod
    def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return the columns of a table alone; see `Format.for_prediction`."""
        return cls(path=location, features=tuple(columns) or None)


@dataclass(frozen=True, kw_only=True)
class Tsv(Csv):
    """A table of numbers as text, whose first row names its columns, separated by tabs."""

    suffixes: ClassVar[tuple[str, ...]] = (".tsv",)
    delimiter: ClassVar[str | None] = "\t"


def read_csv(
    path: str | os.PathLike[str],
    label: str | None = None,
    features: Iterable[str] | None = None,
    delimiter: str | None = None,
) -> Dataset:
    """Read a table of numbers whose first row names its columns.

    Parameters
    ----------
    path : str or path
        A local path, or any URL that fsspec knows.
    label : str, optional
        The column of the labels. It holds numbers.
    features : list of str, optional
        The columns of the features, in this order; default: all but `label`.
    delimiter : str, optional
        One character; default: a tab if the name ends in ``.tsv``, else a comma.

    Returns
    -------
    Dataset
        One batch. Features ``{"features": float32 (rows, columns)}``, with NaN where a cell is empty;
        `Dataset.columns` names their columns. Labels ``(rows,)``, or None, are int64 if all are integers, else float32;
        integers among which cells are empty are float64, with NaN there.

    Raises
    ------
    InputError
        If the file cannot be read, has no such column, a cell that is no number, a row of another length, or no rows.
    """
    content = read_file(path)
    if delimiter is None:
        delimiter = "\t" if os.fspath(path).endswith(".tsv") else ","
    if len(delimiter) != 1:
        raise InputError((f"the delimiter is {delimiter!r}: expected one character",))
    header = _header(content, path, delimiter)
    names = chosen_names(path, "column", header, label, features)
    table, labels = _parse(content, path, delimiter, header, names, label)
    if not table.num_rows:
        raise InputError((f"{shown_path(path)} has a header, but no rows",))
    matrix = np.empty((table.num_rows, len(names)), np.float32)
    for i, name in enumerate(names):
        matrix[:, i] = table.column(name).to_numpy()
    dtype = None if labels is None or labels.dtype != np.float64 else "int64"
    source = Source(shown_path(path), first_row=2, note="the header is row 1", label_dtype=dtype)
    unused = left_over(header, names, label)
    return one_batch(source, {MATRIX: matrix}, labels, columns=names, label=label, unused=unused)


def _header(content: bytes, path: str | os.PathLike[str], delimiter: str) -> list[str]:
    """Return the names of the columns: the first row that is not empty."""
    head = content[:MAX_HEADER_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    first_line = re.split(rb"\r\n|\r|\n", head, maxsplit=1)[0]
    try:
        header = next(csv.reader(io.StringIO(first_line.decode()), delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError((f"{shown_path(path)}: the first row cannot be read ({error})",)) from None
    if not header:
        raise InputError((f"{shown_path(path)} is empty: expected a first row that names the columns",))
    hint = "the first row must name the columns"
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise InputError((f"{shown_path(path)}: column {twice[0]!r} is there {header.count(twice[0])} times; {hint}",))
    if all(map(_is_number, header)) and not all(name.isdigit() for name in header):
        raise InputError((f"{shown_path(path)}: the first row holds numbers, {', '.join(header[:4])}; {hint}",))
    return header


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse(
    content: bytes,
    path: str | os.PathLike[str],
    delimiter: str,
    header: list[str],
    names: tuple[str, ...],
    label: str | None,
) -> tuple[pa.Table, NDArray[Any] | None]:
    """Return the table of the features, and the labels."""
    import pyarrow as pa  # costs 0.2 s, and only readers of tables need it

    types = dict.fromkeys(names, pa.float32())
    if label is None:
        return _read_table(content, path, delimiter, header, types), None
    try:
        table = _read_table(content, path, delimiter, header, {**types, label: pa.int64()})
    except InputError:
        # the labels may be fractions; any other fault shows itself again
        table = _read_table(content, path, delimiter, header, {**types, label: pa.float32()})
    return table, table.column(label).to_numpy()


def _read_table(
    content: bytes, path: str | os.PathLike[str], delimiter: str, header: list[str], types: dict[str, Any]
) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    try:
        return arrow_csv.read_csv(
            pa.BufferReader(content),
            # with one thread the errors tell the row
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter),
            convert_options=arrow_csv.ConvertOptions(include_columns=list(types), column_types=types),
        )
    except pa.ArrowException as error:
        if match := BAD_CELL.search(str(error)):
            name = header[int(match[1])]
            fault = _cell_fault(path, name, int(match[2]), repr(match[3][:40]))
        else:
            fault = f"{shown_path(path)}: {str(error)[:200]} (the header is row 1)"
    raise InputError((fault,))


def _cell_fault(path: str | os.PathLike[str], name: str, row: int, got: str) -> str:
    return (
        f"{shown_path(path)}: expected a number, got {got} in column {name!r}, row {row} (the header is row 1); "
        "labels are numbers (0, 1, ... for classes), features too: leave other columns out"
    )
