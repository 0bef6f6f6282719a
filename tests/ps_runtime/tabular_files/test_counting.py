"""Counting finds the chunks that a scan finds, and skips the checks of a scan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.arrow_file import ArrowFile
from psflow.ps_runtime.tabular_files.base import RecordError, RecordFormat
from psflow.ps_runtime.tabular_files.counting import count_records
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.json_lines import JsonLines
from psflow.ps_runtime.tabular_files.libsvm import LibSvmText
from psflow.ps_runtime.tabular_files.listing import list_files
from psflow.ps_runtime.tabular_files.parquet import Parquet
from psflow.ps_runtime.tabular_files.reader import RecordReader
from tests.ps_runtime.tabular_files.reading import index_of
from tests.ps_runtime.tabular_files.test_every_format import FORMS, TABLES, TYPES

CSV = DelimitedText(types={"a": "float64"})
Unreadable = tuple[int, str, str]


def counted(path: Path, record_format: RecordFormat = CSV, types: Any = None, chunk_bytes: int = 4096) -> RecordIndex:
    types = {"a": "float64"} if types is None else types
    return count_records(list_files(path, record_format.suffixes), record_format, types, chunk_bytes=chunk_bytes)


def readable(index: RecordIndex) -> tuple[dict[int, Any], list[Unreadable]]:
    """Return the records that can be read by their numbers, and the others."""
    others: list[Unreadable] = []
    found = {}
    with RecordReader(index) as reader:
        for chunk in range(index.num_chunks):
            for first, table, _ in reader.readable(chunk, lambda *other: others.append(other)):
                found |= dict(enumerate(table.to_pylist(), first))
    return found, others


@pytest.mark.parametrize(("write", "record_format"), FORMS)
@settings(max_examples=20)
@given(table=TABLES)
def test_the_index_is_that_of_a_scan(
    tmp_path_factory: Any, write: Callable[[pa.Table, Path], None], record_format: RecordFormat, table: pa.Table
) -> None:
    path = tmp_path_factory.mktemp("data") / f"t{record_format.suffixes[0]}"
    write(table, path)
    expected = index_of(path, record_format, list(TYPES), chunk_bytes=20)
    found = counted(path, record_format, TYPES, chunk_bytes=20)
    np.testing.assert_array_equal(found.first_records, expected.first_records)
    np.testing.assert_array_equal(found.chunk_places, expected.chunk_places)
    assert list(readable(found)[0].values()) == table.to_pylist()


@pytest.mark.parametrize("chunk_bytes", [8, 4096])
def test_records_that_cannot_be_read_count_and_are_reported_one_by_one(tmp_path: Path, chunk_bytes: int) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'b,a\nx,1\nx,no\n\n"y\nz",2\nshort\nx,3,4\n\xff\xff,5\n\xff\nx,6\n')
    index = counted(path, chunk_bytes=chunk_bytes)
    found, others = readable(index)
    assert {number: row["a"] for number, row in found.items()} == {0: 1, 2: 2, 5: 5, 7: 6}
    assert [(record, text.strip("\n")) for record, _, text in others] == [
        (1, "x,no"),
        (3, "short"),
        (4, "x,3,4"),
        (6, "\ufffd"),
    ]
    assert "expects a number, got 'no'" in others[0][1]
    assert index.num_records == 8


def test_a_line_that_is_no_object_counts_and_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n' + "".join(f'{{"a": {i}}}\n' for i in range(50)) + "[2]\n" + '{"a": "x"}\n{"a": 3}\n')
    fine = tmp_path / "first.jsonl"
    fine.write_text('{"a": 1}\n')
    index = count_records(list_files([fine, path], ".jsonl"), JsonLines(types={"a": "float64"}), {"a": "float64"})
    found, others = readable(index)
    assert len(found) == 53
    assert [(record, text.strip()) for record, _, text in others] == [(52, "[2]"), (53, '{"a": "x"}')]


def test_lines_of_libsvm_count_and_those_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "t.svm"
    path.write_text("# all of it\n1 1:0.5\n\n0 2:1 # last\n1 9:1\n0 x\n1 2:3\n")
    index = counted(path, LibSvmText(num_features=2), {"features": "float32[2]"})
    found, others = readable(index)
    assert {record: row["features"] for record, row in found.items()} == {0: [0.5, 0], 1: [0, 1], 4: [0, 3]}
    assert [(record, text) for record, _, text in others] == [(2, "1 9:1\n"), (3, "0 x\n")]


def test_a_value_of_parquet_that_cannot_be_read_is_an_error_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": ["1", "x"]}), path)
    index = counted(path, Parquet(types={"a": "float64"}))
    with pytest.raises(InputError, match=r"t\.parquet, row 1 \(the first row is 0\): column 'a' expects a number"):
        readable(index)


@pytest.mark.parametrize(("name", "record_format"), [("t.parquet", Parquet()), ("t.arrow", ArrowFile())])
def test_numbers_widen_to_those_of_a_later_file(tmp_path: Path, name: str, record_format: RecordFormat) -> None:
    for folder, values in (("1", pa.array([1, 2])), ("2", pa.array([0.5])), ("3", pa.nulls(1))):
        (tmp_path / folder).mkdir()
        table = pa.table({"a": values})
        if name == "t.parquet":
            pq.write_table(table, tmp_path / folder / name)
        else:
            with pa.ipc.new_file(tmp_path / folder / name, table.schema) as writer:
                writer.write_table(table)
    index = counted(tmp_path, record_format, {"a": "int64"})
    assert [row["a"] for row in readable(index)[0].values()] == [1, 2, 0.5, None]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (b"b\n1\n", r"2\.csv has no column 'a'"),
        (b'a\n1\n"2\n', r"2\.csv, row 3 .*: the quote that begins .* does not close"),
        (b"a\n1\n\x00\n", r"2\.csv, row 3 .*: expected text, got a NUL byte"),
        (b"PAR1", r"2\.csv: the file is a Parquet file"),
    ],
)
def test_files_whose_records_cannot_be_separated_are_refused(tmp_path: Path, second: bytes, words: str) -> None:
    (tmp_path / "1.csv").write_bytes(b"a\n1\n")
    (tmp_path / "2.csv").write_bytes(second)
    with pytest.raises(InputError, match=words):
        counted(tmp_path)


def test_an_input_without_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_bytes(b"a\n")
    with pytest.raises(InputError, match=r"1\.csv: expected records, found none"):
        counted(tmp_path)


def test_progress_is_reported_in_bytes_of_all_files(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text("a\n" + "1.5\n" * 8)
    told: list[int] = []
    files = list_files(tmp_path, ".csv")
    count_records(files, CSV, {"a": "float64"}, chunk_bytes=20, on_progress=told.append)
    assert told == sorted(told)
    assert (told[-1], len(told)) == (68, 4)


@settings(max_examples=60)
@given(text=st.text(alphabet='1,\n\r"', max_size=20))
def test_lines_that_are_records_for_sure_are_those_that_pyarrow_counts(tmp_path_factory: Any, text: str) -> None:
    path = tmp_path_factory.mktemp("data") / "t.csv"
    path.write_text(f"a,b\n{text}\n1,1\n", newline="")
    try:
        with DelimitedText().open(list_files(path, ".csv")[0]) as records:
            [place] = [place for place in records.places(4096) if place]
            expected = records._read_whole_rows(records.text_of(place), ["a"])  # type: ignore[attr-defined]
            assert records.count(place) == expected[0].num_rows + expected[1]
    except RecordError:  # a quote that does not close
        assert '"' in text
