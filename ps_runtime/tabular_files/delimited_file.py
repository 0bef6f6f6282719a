"""Reads an open file of delimited text: its header, and each chunk by pyarrow's parser."""

from __future__ import annotations

import codecs
import csv as text_csv
import functools
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.raw_types import arrow_type, first_fault
from psflow.ps_runtime.tabular_files.base import NAME_OF_COLUMN, ChunkRange, InvalidValues, OnInvalid, RecordError
from psflow.ps_runtime.tabular_files.cuts import QuotedSpans, first_record_end, last_record_end, plain_lines
from psflow.ps_runtime.tabular_files.files import DataFile, read_bytes
from psflow.ps_runtime.tabular_files.text_cells import FALSE, HEX, TRUE, inferred_type, parse_cells, stripped
from psflow.ps_runtime.tabular_files.text_file import INFERRED_ROWS, MAX_RECORD_BYTES, OpenText

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv

HEADER_BYTES = 64 * 1024
HEADER_HINT = "the first row must name the columns; for a file without such a row set column_names"
NUL_HINT = "the file is damaged, or UTF-16 or UTF-32: convert it to UTF-8"
ENCODING_HINT = "set encoding, such as latin-1 or cp1252"
BAD_VALUE = re.compile(r"In CSV column #(\d+):")
BAD_ROW = re.compile(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


class OpenDelimited(OpenText):
    """An open file of delimited text; the parameters are those of `DelimitedText`."""

    def __init__(
        self,
        file: DataFile,
        delimiter: str,
        column_names: tuple[str, ...] | None,
        na_values: tuple[str, ...],
        encoding: str,
    ) -> None:
        super().__init__(file)
        self._delimiter, self._na_values, self._encoding = delimiter, na_values, encoding
        self._is_utf8 = codecs.lookup(encoding).name == "utf-8"
        self._has_header = column_names is None
        self._as_text: set[str] = set()  # columns whose cells pyarrow's parser rejects, for white space or the like
        try:
            self._names = self._header() if column_names is None else column_names
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self._names

    def types(self, names: Sequence[str]) -> dict[str, str]:
        """Return the common types of the first cells of some columns; see `OpenRecords.types`."""
        # a record of another length is ignored here, and is an error when it is read
        cells, _ = self._read_whole_rows(self._utf8(self.inferred_text()), names)
        first = cells.slice(0, INFERRED_ROWS)
        return {name: inferred_type(self._values(first[name], "string", name)) for name in names}

    def places(self, chunk_bytes: int) -> Iterator[ChunkRange]:
        """Return the range of each chunk; see `OpenRecords.places`.

        Raises
        ------
        RecordError
            Also if the first row repeats the given names of the columns.
        """
        if not self._has_header and [cell.strip() for cell in self.first_cells()] == list(self._names):
            what = f"the first row is not a record, but repeats column_names: {', '.join(self._names[:4])}"
            raise RecordError(f"{what}; leave column_names out")
        return super().places(chunk_bytes)

    def first_cells(self) -> list[str]:
        """Return the cells of the first row that is not empty, a header or not; none if there is no such row.

        Raises RecordError if it cannot be read.
        """
        return _cells_in(self._first_row()[1], self._delimiter, self._encoding)

    def record_end(self, text: bytes) -> int:
        """Return the end of the last whole record of `text`; 0 if there is none."""
        return last_record_end(text, self._spans(text))

    def check_end(self, text: bytes) -> None:
        """Raise RecordError if the last quote does not close."""
        unclosed = self._spans(text).unclosed
        if unclosed is not None:
            opened = text[unclosed : unclosed + 20].decode(self._encoding, "replace")
            what = f"the quote that begins {opened!r} does not close: the file is truncated, or the quote is wrong"
            raise RecordError(what, self._record_at(text[:unclosed]))

    def count(self, place: ChunkRange) -> int:
        """Return the number of records of a chunk, including those with too few or too many cells."""
        text = self._utf8(self.text_of(place))
        if (num_lines := plain_lines(text)) is not None:
            return num_lines
        table, others = self._read_whole_rows(text, self._names[:1])
        return int(table.num_rows) + others

    def read(self, place: ChunkRange, types: Mapping[str, str], on_invalid: OnInvalid | None = None) -> pa.Table:
        """Return the records of a chunk; see `OpenRecords.read`."""
        import pyarrow as pa

        text = self._utf8(self.text_of(place))
        if _has_hexadecimal(text):  # pyarrow's parser would read one
            self._as_text |= {name for name, raw in types.items() if raw == "int64"}
        while True:
            try:
                table = self._parse(text, types)
                break
            except _BadValueError as error:
                self._as_text.add(error.column)
        found: list[InvalidValues] = []
        as_written, columns = table, dict(zip(table.column_names, table.columns, strict=True))
        for name, raw in types.items():
            if self._is_text(name, raw):
                columns[name] = self._values(columns[name], raw, name, None if on_invalid is None else found.append)
        table = pa.table(columns)  # built once: replacing a column takes time proportional to the width
        if on_invalid is None:
            return table
        headers = _repeated_headers(as_written, types, found) if self._has_header else np.empty(0, np.int64)
        for values in found:
            on_invalid(_with_headers(values, headers))
        return _without_headers(table, types, headers, on_invalid) if len(headers) else table

    def _spans(self, text: bytes) -> QuotedSpans:
        return QuotedSpans(text, self._delimiter.encode())

    def _is_text(self, name: str, raw: str) -> bool:
        return raw in ("string", "timestamp") or name in self._as_text

    def _parse(self, text: bytes, types: Mapping[str, str]) -> pa.Table:
        """Return the columns; strings as text, or as bytes if some are not UTF-8."""
        import pyarrow as pa

        stored = {
            name: (pa.binary() if name in self._as_text else pa.string())
            if self._is_text(name, raw)
            else arrow_type(raw)
            for name, raw in types.items()
        }
        return self._read_csv(text, stored)

    def _values(
        self, cells: pa.ChunkedArray, raw: str, name: str, on_invalid: OnInvalid | None = None
    ) -> pa.ChunkedArray:
        """Return cells as values of a type; see `parse_cells`."""
        import pyarrow as pa

        try:
            text = cells.cast(pa.string())
        except pa.ArrowInvalid:
            record = first_fault(len(cells), lambda n: cells.slice(0, n).cast(pa.string()))
            what = f"{cells[record].as_py()[:40]!r} in column {name!r} is not UTF-8; {ENCODING_HINT}"
            raise RecordError(what, record) from None
        return parse_cells(stripped(text, self._na_values), raw, name, on_invalid)

    def _utf8(self, text: bytes) -> bytes:
        """Return records in UTF-8, which pyarrow checks in the columns that are read."""
        if (nul := text.find(b"\0")) >= 0:
            raise RecordError(f"expected text, got a NUL byte; {NUL_HINT}", self._record_at(text[:nul]))
        if self._is_utf8:
            return text
        try:
            return text.decode(self._encoding).encode()
        except UnicodeDecodeError as error:
            what = f"{text[error.start : error.start + 20]!r} is not {self._encoding}; set encoding"
            raise RecordError(what, self._record_at(text[: error.start])) from None

    def _record_at(self, before: bytes) -> int:
        """Return the number of the record that begins in, or after, some bytes of a chunk."""
        import pyarrow as pa

        text = before[: last_record_end(before, self._spans(before))]
        return int(self._read_csv(text, {self._names[0]: pa.binary()}).num_rows)

    def _header(self) -> tuple[str, ...]:
        """Return the names in the first row that is not empty; records begin after it."""
        num_empty, row = self._first_row()
        self.first_byte += num_empty + len(row)
        return _names_in(row, self._delimiter, self._encoding)

    def _first_row(self) -> tuple[int, bytes]:
        """Return the number of bytes of leading empty lines, and the first row after them."""
        length = HEADER_BYTES
        while True:
            stop = min(self.first_byte + length, self.file.size)
            head = read_bytes(self.file, self._opened, self.first_byte, stop)
            text = head.lstrip(b"\r\n")
            spans = self._spans(text)
            if (end := first_record_end(text, spans)) or stop == self.file.size:
                break
            if length >= MAX_RECORD_BYTES:
                raise RecordError(f"the first row is longer than {MAX_RECORD_BYTES} bytes; {HEADER_HINT}")
            length = MAX_RECORD_BYTES
        row = text[: end or len(text)]
        if not end and spans.unclosed is not None:
            raise RecordError(f"a quote in the first row does not close; {HEADER_HINT}")
        return len(head) - len(text), row

    def _read_whole_rows(self, text: bytes, names: Sequence[str]) -> tuple[pa.Table, int]:
        """Return some cells as bytes for records of the right length, and the number of other records."""
        import pyarrow as pa

        others: list[int] = []

        def skip(row: csv.InvalidRow) -> str:
            others.append(row.number)
            return "skip"

        if not text.isascii():
            text = text.decode(errors="replace").encode()  # pyarrow reports no row that is not UTF-8
        return self._read_csv(text, dict.fromkeys(names, pa.binary()), on_other=skip), len(others)

    def _read_csv(
        self,
        text: bytes,
        stored: Mapping[str, pa.DataType],
        on_other: Callable[[csv.InvalidRow], str] | None = None,
    ) -> pa.Table:
        """Parse records, and return the columns `stored` of these types; `on_other` receives those of other lengths."""
        import pyarrow as pa
        from pyarrow import csv

        reading = csv.ReadOptions(
            use_threads=False,  # otherwise pyarrow does not report the row of an error
            block_size=len(text) + 1,
            column_names=self._names,
        )
        parsing = csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=on_other)
        converting = csv.ConvertOptions(
            column_types=stored,
            include_columns=list(stored),
            null_values=self._na_values,
            true_values=TRUE,
            false_values=FALSE,
            strings_can_be_null=True,
        )
        try:
            return csv.read_csv(pa.BufferReader(text or b"\n"), reading, parsing, converting)
        except pa.ArrowInvalid as error:
            reason = str(error)
        if match := BAD_VALUE.match(reason):
            raise _BadValueError(self._names[int(match[1])])
        if match := BAD_ROW.match(reason):
            what = f"expected {match[2]} cells, got {match[3]}: {match[4][:60]!r}"
            advice = _advice(int(match[2]), int(match[3]), match[4], self._delimiter)
            raise RecordError(f"{what}; {advice}", int(match[1]) - 1)
        raise RecordError(f"pyarrow rejects the text: {reason[:200]}")


def _has_hexadecimal(text: bytes) -> bool:
    """Return whether records may contain a hexadecimal number; that most contain no x is found much faster."""
    return (b"x" in text or b"X" in text) and re.search(HEX.encode(), text) is not None


class _BadValueError(Exception):
    """Pyarrow's parser rejects a value of a column, which may still be valid."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


def _advice(expected: int, got: int, row: str, delimiter: str) -> str:
    """Return advice for a row with a wrong number of cells."""
    if not row.strip(" \t\x1a"):
        return "remove the line"
    if got < expected:
        return "a cell is missing, or the row is truncated"
    if expected == 1:
        return "the first row must name all columns: remove the lines above it"
    if got == expected + 1 and row.rstrip(" \r\n").endswith(delimiter):
        return f"the row ends with {delimiter!r}: end the header with it, too, or remove it"
    return f"a cell that contains the delimiter {delimiter!r} needs quotes"


def _names_in(row: bytes, delimiter: str, encoding: str) -> tuple[str, ...]:
    """Return the names of columns in a header, as pandas reads them; an unnamed column has an empty name."""
    if b"\0" in row:
        raise RecordError(f"the first row has a NUL byte; {NUL_HINT}")
    names = _cells_in(row, delimiter, encoding)
    if not any(names):
        raise RecordError(f"expected a first row with names of columns, got {row[:40]!r}; {HEADER_HINT}")
    if twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise RecordError(f"column {twice[0]!r} occurs {names.count(twice[0])} times; {HEADER_HINT}")
    if all(map(_is_number, names)) and not _counts(names):
        raise RecordError(f"the first row holds numbers, {', '.join(names[:4])}; {HEADER_HINT}")
    return tuple(names)


def _cells_in(row: bytes, delimiter: str, encoding: str) -> list[str]:
    """Return the cells of one row."""
    try:
        return next(text_csv.reader(io.StringIO(row.decode(encoding), newline=""), delimiter=delimiter), [])
    except UnicodeDecodeError:
        raise RecordError(f"the first row is not {encoding}; {ENCODING_HINT}") from None
    except text_csv.Error as error:
        raise RecordError(f"the first row cannot be read ({error}); {HEADER_HINT}") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _counts(names: list[str]) -> bool:
    """Return whether names are 0, 1, 2, ... or 1, 2, 3, ..., as tools write for unnamed columns."""
    return any(names == [str(first + i) for i in range(len(names))] for first in (0, 1))


def _repeated_headers(table: pa.Table, types: Mapping[str, str], invalid: Sequence[InvalidValues]) -> NDArray[np.int64]:
    """Return the rows in which each column has its name, as in the header of a file that was appended to another."""
    string_columns = [name for name, raw in types.items() if raw == "string"]
    if len(types) < 2 or len(invalid) + len(string_columns) < len(
        types
    ):  # a column has neither strings nor invalid values
        return np.empty(0, np.int64)
    rows = [values.rows[_named(table[values.column].take(values.rows), values.column)] for values in invalid]
    for name in string_columns:
        if rows and not len(rows[-1]):
            break
        rows.append(_named(table[name], name))
    return functools.reduce(np.intersect1d, rows)


def _named(cells: pa.ChunkedArray, name: str) -> NDArray[np.int64]:
    """Return which cells are the name of their column, in any case."""
    import pyarrow as pa
    import pyarrow.compute as pc

    bare = pc.utf8_lower(pc.ascii_trim_whitespace(cells.cast(pa.string())))
    named = pc.equal(bare, pc.utf8_lower(pa.scalar(name.strip())))
    rows: NDArray[np.int64] = pc.indices_nonzero(named).to_numpy().astype(np.int64)
    return rows


def _with_headers(values: InvalidValues, headers: NDArray[np.int64]) -> InvalidValues:
    """Return values that are marked if their rows are headers."""
    is_header = np.isin(values.rows, headers)
    shown = zip(values.shown, is_header, strict=True)
    return replace(values, shown=tuple(value + NAME_OF_COLUMN * bool(named) for value, named in shown))


def _without_headers(
    table: pa.Table, types: Mapping[str, str], headers: NDArray[np.int64], on_invalid: OnInvalid
) -> pa.Table:
    """Return a table with null for strings in header rows, which `on_invalid` receives."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_header = np.zeros(table.num_rows, np.bool_)
    is_header[headers] = True
    columns = dict(zip(table.column_names, table.columns, strict=True))
    for name, raw in types.items():
        if raw == "string":
            on_invalid(InvalidValues(name, headers, (repr(name) + NAME_OF_COLUMN,) * len(headers)))
            columns[name] = pc.if_else(pa.array(is_header), None, columns[name])
    return pa.table(columns)
