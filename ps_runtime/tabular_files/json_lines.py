"""Reads JSON lines: an object in each line, a column for each key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from psflow.ps_runtime.columns.raw_types import arrow_type, cast_values, first_fault
from psflow.ps_runtime.tabular_files.base import ChunkRange, OnInvalid, OpenRecords, RecordError, RecordFormat
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.json_values import ADVICE, first_types, line_fault, object_of, without_invalid
from psflow.ps_runtime.tabular_files.text_cells import parse_cells, value_fault
from psflow.ps_runtime.tabular_files.text_file import INFERRED_ROWS, OpenText

if TYPE_CHECKING:
    import pyarrow as pa

IN_ROW = re.compile(r" in row \d+$")
WHITE_SPACE = b" \t\r\n"


@dataclass(frozen=True, kw_only=True)
class JsonLines(RecordFormat):
    """Records as lines of JSON in UTF-8, an object in each; a key that a line lacks is null.

    Numbers and booleans are those of JSON, strings are dates or timestamps if the first lines all look like that,
    and lists of numbers of one length are arrays. Objects in objects can be skipped, but not read.
    """

    name: ClassVar[str] = "json_lines"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json")

    @property
    def first_row(self) -> int:
        """The number of the first record of a file in messages: its line."""
        return 1

    @property
    def row_note(self) -> str:
        """How rows are counted."""
        return "rows are lines, from 1"

    def open(self, file: DataFile) -> OpenRecords:
        """Return the open file; see `RecordFormat.open`."""
        return OpenJsonLines(file)


class OpenJsonLines(OpenText):
    """An open file of JSON lines."""

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of the first lines."""
        return tuple(self._first_types)

    def lacking(self, names: Sequence[str]) -> list[str]:
        """Return the columns that all of the first lines lack."""
        line = self.inferred_text().partition(b"\n")[0]
        try:
            first = json.loads(line)
        except ValueError:
            first = None  # the first read reports it better
        if isinstance(first, dict) and all(name in first for name in names):
            return []
        return super().lacking(names)

    def types(self, names: Sequence[str]) -> dict[str, str]:
        """Return the types of columns in the first lines; see `OpenRecords.types`."""
        return {name: self._first_types[name] for name in names}

    def record_end(self, text: bytes) -> int:
        """Return the end of the last line of `text`; 0 if there is none."""
        return text.rfind(b"\n") + 1

    def check_end(self, text: bytes) -> None:
        """Accept any end: a truncated last line is not JSON, which `read` reports."""

    def count(self, place: ChunkRange) -> int:
        """Return the number of lines of a chunk; see `OpenRecords.count`."""
        lines = self._lines(place)
        return lines.count(b"\n") + 1 if lines else 0

    def read(self, place: ChunkRange, types: Mapping[str, str], on_invalid: OnInvalid | None = None) -> pa.Table:
        """Return the records of a chunk; see `OpenRecords.read`."""
        import pyarrow as pa

        lines = self._lines(place)
        schema = pa.schema([(name, _json_type(raw)) for name, raw in types.items()])
        try:
            table = _checked(lines, schema, types)
        except RecordError as fault:
            if on_invalid is None or fault.column is None or fault.widens:
                raise
            table = _checked(without_invalid(lines, types, on_invalid), schema, types)
        return pa.table({name: _values(table[name], name, raw, on_invalid) for name, raw in types.items()})

    def _lines(self, place: ChunkRange) -> bytes:
        """Return the lines of a chunk without the end of the last one."""
        text = self.text_of(place)
        return text.rstrip(WHITE_SPACE) if place.stop == self.file.size else text[:-1]

    @cached_property
    def _first_types(self) -> dict[str, str]:
        lines = self.inferred_text().split(b"\n", INFERRED_ROWS)[:INFERRED_ROWS]
        while lines and not lines[-1].strip():
            lines.pop()
        return first_types(lines)


def _json_type(raw: str) -> pa.DataType:
    """Return the type with which pyarrow reads a raw type from JSON."""
    import pyarrow as pa

    stored = arrow_type(raw)
    if pa.types.is_fixed_size_list(stored):
        return pa.list_(stored.value_type)
    return pa.string() if raw in ("date", "timestamp") else stored


def _values(values: pa.ChunkedArray, name: str, raw: str, on_invalid: OnInvalid | None) -> pa.ChunkedArray:
    """Return values read by pyarrow as those of a raw type."""
    import pyarrow as pa

    if raw in ("date", "timestamp"):
        return parse_cells(values, raw, name, on_invalid)
    try:
        return cast_values(values, raw)
    except pa.ArrowInvalid:
        record = first_fault(len(values), lambda n: cast_values(values.slice(0, n), raw))
        raise value_fault(name, raw, f"a list of {len(values[record])}", record, ADVICE) from None


def _parsed(lines: bytes, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, without further checks."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    return arrow_json.read_json(
        pa.BufferReader(lines or b"\n"),
        arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 2),
        arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _checked(lines: bytes, schema: pa.Schema, types: Mapping[str, str]) -> pa.Table:
    """Return the columns of lines, each of which must be an object."""
    import pyarrow as pa

    try:
        lines.decode()  # pyarrow does not check
        table = _parsed(lines, schema)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        every = lines.split(b"\n")
        record = first_fault(len(every), lambda n: _decoded(every[:n], schema))
        raise line_fault(every[record], types, IN_ROW.sub("", str(error))[:160], record) from None
    if table.num_rows != (lines.count(b"\n") + 1 if lines else 0):
        for record, line in enumerate(lines.split(b"\n")):
            object_of(line, record)
        raise RecordError("expected a JSON object in each line")
    return table


def _decoded(lines: list[bytes], schema: pa.Schema) -> None:
    """Parse lines to raise pyarrow's error."""
    import pyarrow as pa

    text = b"\n".join(lines)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise pa.ArrowInvalid(str(error)) from None
    _parsed(text, schema)
