from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.reader import RecordReader
from tests.ps_runtime.tabular_files.reading import index_of, rewrite, types_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0.csv").write_text("a,b\n" + "".join(f"{i},x{i}\n" for i in range(30)))
    (tmp_path / "1.csv").write_text("b,a\n" + "".join(f"x{i},{i}\n" for i in range(30, 50)))
    return tmp_path


@pytest.fixture
def index(folder: Path) -> RecordIndex:
    return index_of(folder, chunk_bytes=40)


def test_any_range_can_be_read_in_any_order(index: RecordIndex) -> None:
    assert index.num_chunks > 5
    with RecordReader(index) as reader:
        assert reader.num_records == 50
        for start, stop in ((49, 50), (0, 50), (3, 3), (28, 33), (0, 1), (10, 40), (50, 50)):
            table = reader.read(start, stop)
            numbers = list(range(start, stop))
            assert table.to_pydict() == {"a": numbers, "b": [f"x{i}" for i in numbers]}
            assert [str(kind) for kind in table.schema.types] == ["int64", "string"]


def test_columns_are_read_in_the_order_asked_for(index: RecordIndex) -> None:
    assert types_of(index) == {"a": "int64", "b": "string"}
    reader = RecordReader(index, ["b", "a"])
    assert [column.name for column in reader.columns] == ["b", "a"]
    assert reader.read(31, 32).to_pylist() == [{"b": "x31", "a": 31}]
    assert RecordReader(index, ["b"]).read(31, 32).to_pylist() == [{"b": "x31"}]
    with pytest.raises(InputError, match=r"/0.csv has no column 'c'; its columns are 'a', 'b'"):
        RecordReader(index, ["c"])
    with pytest.raises(InputError, match=r"/0.csv: expected at least one column to read, got none"):
        RecordReader(index, [])


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (3, 2), (0, 51)])
def test_ranges_that_are_none_are_refused(index: RecordIndex, start: int, stop: int) -> None:
    with pytest.raises(ValueError, match=rf"expected records in \[0, 50\], in order, got \[{start}, {stop}\)"):
        RecordReader(index).read(start, stop)


def test_chunks_that_are_none_are_refused(index: RecordIndex) -> None:
    for number in (-1, index.num_chunks):
        with pytest.raises(ValueError, match="expected a chunk in"):
            RecordReader(index).read_chunk(number)


def test_a_changed_file_is_refused(folder: Path, index: RecordIndex) -> None:
    with RecordReader(index) as reader:
        reader.read(0, 1)
        content = (folder / "0.csv").read_bytes()
        rewrite(folder / "0.csv", content.replace(b"x29", b"y29"))
        with pytest.raises(InputError, match=r"/0.csv has changed since it was scanned: it was rewritten"):
            reader.read(29, 30)
        assert reader.read(30, 31).to_pydict() == {"a": [30], "b": ["x30"]}
        (folder / "1.csv").unlink()
        with pytest.raises(InputError, match=r"there is no file .*/1.csv"):
            reader.read(49, 50)


def test_a_change_that_stamp_and_size_do_not_tell_is_an_error_where_it_shows(folder: Path, index: RecordIndex) -> None:
    content = (folder / "0.csv").read_bytes()
    (folder / "0.csv").write_bytes(content.replace(b"29,x29", b"zz,x29"))
    status = (folder / "0.csv").stat()
    files = (DataFile(str(folder / "0.csv"), status.st_size, str(status.st_mtime_ns)), index.files[1])
    with pytest.raises(InputError, match=r"/0.csv, row 31 .*: column 'a' expects a whole number \(int64\), got 'zz'"):
        RecordReader(replace(index, files=files)).read(29, 30)
    fewer = replace(index, first_records=np.append(index.first_records[:-1], 51))
    with pytest.raises(InputError, match=r"chunk \d+ has \d+ records, expected \d+: the file has changed; run"):
        RecordReader(fewer).read(48, 50)


def test_ranges_that_follow_read_each_chunk_once(index: RecordIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[int] = []
    read = RecordReader._read
    monkeypatch.setattr(RecordReader, "_read", lambda self, number: chunks.append(number) or read(self, number))
    with RecordReader(index) as reader:
        for start in range(0, 50, 2):
            reader.read(start, start + 2)
    assert chunks == list(range(index.num_chunks))


def test_a_closed_reader_opens_its_file_again(index: RecordIndex) -> None:
    reader = RecordReader(index)
    assert reader.read(0, 1).num_rows == 1
    reader.close()
    reader.close()
    assert reader.read(1, 2).to_pydict() == {"a": [1], "b": ["x1"]}
    reader.close()


def test_a_url_is_read_as_a_file_is() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe("/psflow-reader/a.csv", b"a,b\n" + b"1,x\n" * 20)
    try:
        index = index_of("memory://psflow-reader", chunk_bytes=16)
        assert index.place(19) == ("memory://psflow-reader/a.csv", 21)
        with RecordReader(index) as reader:
            assert reader.read(13, 15).to_pydict() == {"a": [1, 1], "b": ["x", "x"]}
            fs.pipe("/psflow-reader/a.csv", b"a,b\n" + b"2,x\n" * 20)
            with pytest.raises(InputError, match=r"^memory://psflow-reader/a.csv has changed"):
                reader.read(0, 1)
    finally:
        fs.rm("/psflow-reader", recursive=True)
