"""Laws of every format, tried on random tables: the chunks are the table, and any range is its slice."""

from __future__ import annotations

import csv
import datetime
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv

from psflow.ps_runtime.tabular_files.arrow_file import ArrowFile
from psflow.ps_runtime.tabular_files.base import RecordFormat
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.json_lines import JsonLines
from psflow.ps_runtime.tabular_files.parquet import Parquet
from psflow.ps_runtime.tabular_files.reader import RecordReader
from tests.ps_runtime.tabular_files.reading import index_of, read_all

TYPES = {"i": "int64", "f": "float64", "s": "string", "b": "bool", "d": "date", "t": "timestamp"}
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us")),
    ]
)
WORDS = st.text(alphabet="\",;\n\r'xé€ ", min_size=1, max_size=6).map(str.strip).filter(bool)
ROWS = st.fixed_dictionaries(
    {
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "s": st.none() | WORDS,
        "b": st.none() | st.booleans(),
        "d": st.none() | st.dates(datetime.date(1, 1, 1)),
        "t": st.none() | st.datetimes(datetime.datetime(1, 1, 1)),
    }
)
TABLES = st.lists(ROWS, min_size=1, max_size=12).map(lambda rows: pa.Table.from_pylist(rows, SCHEMA))


def write_csv(table: pa.Table, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, table.column_names, delimiter=";", lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(table.to_pylist())


def write_json(table: pa.Table, path: Path) -> None:
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=3)


def write_arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


FORMS: list[tuple[Callable[[pa.Table, Path], None], RecordFormat]] = [
    (write_csv, DelimitedText(delimiter=";", types=TYPES)),
    (write_json, JsonLines(types=TYPES)),
    (write_parquet, Parquet()),
    (write_arrow, ArrowFile()),
]


@pytest.mark.parametrize(("write", "record_format"), FORMS, ids=["csv", "json", "parquet", "arrow"])
@settings(max_examples=25)
@given(tables=st.lists(TABLES, min_size=1, max_size=2), chunk_bytes=st.integers(1, 200), data=st.data())
def test_chunks_are_the_table_and_ranges_its_slices(
    write: Callable[[pa.Table, Path], None],
    record_format: RecordFormat,
    tables: list[pa.Table],
    chunk_bytes: int,
    data: st.DataObject,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for i, table in enumerate(tables):
            write(table, Path(folder, f"{i}{record_format.suffixes[0]}"))
        index = index_of(folder, record_format, chunk_bytes=chunk_bytes)
        whole = pa.concat_tables(tables)
        assert read_all(index).equals(whole)
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
        with RecordReader(index) as reader:
            assert reader.read(start, stop).equals(whole.slice(start, stop - start))


CELLS = st.text(alphabet='",\n\r ax', max_size=4)


@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=10), chunk_bytes=st.integers(1, 40))
def test_text_is_what_pyarrow_reads_of_the_whole(rows: list[tuple[str, str]], chunk_bytes: int) -> None:
    file = io.StringIO()
    csv.writer(file, lineterminator="\r\n").writerows(rows)
    text = file.getvalue().encode()
    whole = arrow_csv.read_csv(
        pa.BufferReader(text),
        arrow_csv.ReadOptions(use_threads=False, column_names=["a", "b"]),
        arrow_csv.ParseOptions(newlines_in_values=True),
        arrow_csv.ConvertOptions(column_types=dict.fromkeys("ab", pa.string())),
    )
    expected: Any = [{name: (cell.strip(" \r\n") or None) for name, cell in row.items()} for row in whole.to_pylist()]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "t.csv").write_bytes(text)
        headless = DelimitedText(column_names=["a", "b"], na_values=[], types={"a": "string", "b": "string"})
        assert read_all(index_of(folder, headless, chunk_bytes=chunk_bytes)).to_pylist() == expected
