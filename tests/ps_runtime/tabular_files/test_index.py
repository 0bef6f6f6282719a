from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.base import RecordFormat
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.formats import RECORD_FORMATS
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.json_lines import JsonLines
from psflow.ps_runtime.tabular_files.sealed import DIGEST_BYTES
from tests.ps_runtime.tabular_files.reading import index_of, read_all, rewrite


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, num_rows in enumerate((5, 0, 7, 1)):
        (tmp_path / f"{i}.csv").write_text("a,b\n" + '1,"x\ny"\n' * num_rows)
    return tmp_path


@pytest.fixture
def index(folder: Path) -> RecordIndex:
    return index_of(folder, chunk_bytes=30)


def test_an_index_knows_where_each_record_lies(folder: Path, index: RecordIndex) -> None:
    assert index.num_records == 13
    assert index.num_chunks == 6
    places = [index.place(record) for record in range(13)]
    files = [[str(folder / f"{i}.csv")] for i in range(4)]
    assert [shown for shown, _ in places] == files[0] * 5 + files[2] * 7 + files[3]
    assert [row for _, row in places] == [2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 7, 8, 2]
    for record in (-1, 13):
        with pytest.raises(ValueError, match=rf"expected a record in \[0, 13\), got {record}"):
            index.place(record)


def test_rows_are_counted_as_people_count_them(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,2\n3,4\n")
    assert index_of(tmp_path, DelimitedText(column_names=["a", "b"])).place(1)[1] == 2
    (tmp_path / "t.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    assert index_of(tmp_path, JsonLines()).place(1)[1] == 2


def test_an_index_survives_as_bytes(index: RecordIndex) -> None:
    content = index.to_bytes()
    again = RecordIndex.from_bytes(content)
    assert again.to_bytes() == content
    assert again.digest() == index.digest()
    assert (again.files, again.record_format, again.columns) == (index.files, index.record_format, index.columns)
    np.testing.assert_array_equal(again.chunk_places, index.chunk_places)
    assert read_all(again).equals(read_all(index))


@pytest.mark.parametrize("kind", RECORD_FORMATS.values())
def test_the_options_of_every_format_survive(kind: type[RecordFormat], index: RecordIndex) -> None:
    options = {"delimiter": ";", "column_names": ["a"], "na_values": ["?"], "encoding": "latin-1"}
    text = options if kind is DelimitedText else {}
    given = replace(index, record_format=kind(types={"a": "number"}, **text), unreadable={"x": "map"})
    again = RecordIndex.from_bytes(given.to_bytes())
    assert again.record_format == given.record_format
    assert again.unreadable == {"x": "map"}
    assert {kind.name for kind in RECORD_FORMATS.values()} == set(RECORD_FORMATS)


def test_any_damage_is_an_error(index: RecordIndex) -> None:
    content = index.to_bytes()
    for damaged in (b"", content[:-1], content[1:], content + b"x"):
        with pytest.raises(InputError, match=r"^the record index is damaged: its checksum differs$"):
            RecordIndex.from_bytes(damaged)
    for at in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[at] ^= 4
        with pytest.raises(InputError, match="the record index is damaged"):
            RecordIndex.from_bytes(bytes(flipped))


def test_an_index_of_another_version_is_refused(index: RecordIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    content = index.to_bytes()
    arrays = load(content[DIGEST_BYTES:])
    del arrays["first_records"]
    monkeypatch.setattr("hashlib.sha256", lambda content: _Checksum())
    for other in (save(arrays), b"no safetensors", save({"description": np.zeros(3, np.uint8)})):
        with pytest.raises(InputError, match="the record index is of another version"):
            RecordIndex.from_bytes(b"0" * DIGEST_BYTES + other)


class _Checksum:
    """Of anything."""

    def digest(self) -> bytes:
        return b"0" * DIGEST_BYTES


def test_the_digest_tells_any_change(folder: Path, index: RecordIndex) -> None:
    assert index_of(folder, chunk_bytes=4096).digest() == index.digest()  # chunks are no part of it
    others = {
        index_of(folder, columns=["a"]).digest(),
        index_of(folder, DelimitedText(types={"a": "number"})).digest(),
        index_of(folder, DelimitedText(na_values=["1"])).digest(),
        index_of(folder / "0.csv").digest(),
    }
    rewrite(folder / "1.csv", (folder / "1.csv").read_bytes())  # its stamp alone is another one
    others.add(index_of(folder).digest())
    assert len(others - {index.digest()}) == 5


def test_all_changed_files_are_named(folder: Path, index: RecordIndex) -> None:
    index.check_unchanged()
    rewrite(folder / "0.csv", (folder / "0.csv").read_bytes())
    (folder / "3.csv").unlink()
    with pytest.raises(InputError) as caught:
        index.check_unchanged()
    assert caught.value.faults == (
        f"{folder}/0.csv has changed since it was scanned: it was rewritten; run the command again",
        f"there is no file {folder}/3.csv",
    )
