"""Every format with every fault: errors name file and row, and valid files are read.

The first file is good for 40 rows, its last one is at fault; it is read in chunks of some rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files import delimited_file, json_lines
from psflow.ps_runtime.tabular_files.scan import Scan

ROWS = 40
SUFFIXES = {"csv": "csv", "tsv": "tsv", "jsonl": "jsonl", "parquet": "parquet", "arrow": "arrow"}
TEXT = ("csv", "tsv", "jsonl")
STORED = ("parquet", "arrow")


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Scan.__init__.__kwdefaults__, "chunk_bytes", 100)
    for module in (delimited_file, json_lines):
        monkeypatch.setattr(module, "INFERRED_ROWS", 20)


def cells(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def good(kind: str, words: str = "word", **columns: Any) -> bytes:
    """Return a good file: whole numbers, words and labels."""
    table = {"n": list(range(ROWS)), "s": [f"{words}{i % 3}" for i in range(ROWS)], "y": [i % 2 for i in range(ROWS)]}
    return content_of(kind, {**table, **columns})


def content_of(kind: str, table: dict[str, Any] | pa.Table, rows_together: int = 7) -> bytes:
    if kind in TEXT:
        assert isinstance(table, dict)
        rows = zip(*table.values(), strict=True)
        if kind == "jsonl":
            return cells(*(json.dumps(dict(zip(table, row, strict=True)), ensure_ascii=False) for row in rows))
        mark = "," if kind == "csv" else "\t"
        return cells(mark.join(table), *(mark.join(map(str, row)) for row in rows))
    out = pa.BufferOutputStream()
    table = pa.table(table)
    if kind == "parquet":
        pq.write_table(table, out, row_group_size=rows_together)
    else:
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows_together)
    return bytes(out.getvalue())


def late(kind: str, line: str) -> bytes:
    """Return a good file of text with a last line of its own."""
    mark = "\t" if kind == "tsv" else ","
    return good(kind) + line.replace("|", mark).encode("latin-1") + b"\n"


# What pairs of format and fault hold: the first file, a second one if there is one, and what is said; "": all is well.
QUOTED = '1|"a\n""b""|\n\n"|1'
CASES: dict[tuple[str, str], tuple[list[bytes], str]] = {
    **{(kind, "empty file"): ([b""], "/0.{suffix} is empty") for kind in SUFFIXES},
    **{(kind, "good, then an empty file"): ([good(kind), b""], "/1.{suffix} is empty") for kind in SUFFIXES},
    **{(kind, "cut off"): ([good(kind)[:-9]], "/0.{suffix}: the file cannot be read .*truncated") for kind in STORED},
    ("csv", "cut off"): ([good("csv")[:-4]], rf"/0.csv, row {ROWS + 1} .*: expected 3 cells, got [12]"),
    ("tsv", "cut off"): ([good("tsv")[:-4]], rf"/0.tsv, row {ROWS + 1} .*: expected 3 cells, got [12]"),
    ("jsonl", "cut off"): ([good("jsonl")[:-4]], rf"/0.jsonl, row {ROWS} .*: expected a JSON object"),
    ("csv", "cut off in quotes"): ([late("csv", '1|"cut')], rf"/0.csv, row {ROWS + 2} .*: the quote .* does not close"),
    ("tsv", "cut off in quotes"): ([late("tsv", '1|"cut')], rf"/0.tsv, row {ROWS + 2} .*: the quote .* does not close"),
    **{
        (kind, "late type"): (
            [late(kind, "x|w|1")],
            rf"/0.{kind}: column 'n': {ROWS} of 41 are whole numbers; row {ROWS + 2} .* is 'x'",
        )
        for kind in ("csv", "tsv")
    },
    ("jsonl", "late type"): (
        [good("jsonl") + b'{"n": "x", "s": "w", "y": 1}\n'],
        rf"/0.jsonl: column 'n': {ROWS} of 41 are whole numbers; row {ROWS + 1} .* is \"x\"",
    ),
    ("csv", "too many cells"): ([late("csv", "1|w|1|5")], rf"/0.csv, row {ROWS + 2} .*: expected 3 cells, got 4"),
    ("tsv", "too many cells"): ([late("tsv", "1|w|1|5")], rf"/0.tsv, row {ROWS + 2} .*: expected 3 cells, got 4"),
    ("csv", "too few cells"): ([late("csv", "1|w")], rf"/0.csv, row {ROWS + 2} .*: expected 3 cells, got 2"),
    ("tsv", "too few cells"): ([late("tsv", "1|w")], rf"/0.tsv, row {ROWS + 2} .*: expected 3 cells, got 2"),
    ("jsonl", "too few cells"): (
        [good("jsonl") + b'{"s": "w", "y": 1}\n'],
        rf"/0.jsonl: column 'n' has 1 cell that is missing, .* the first in row {ROWS + 1}",
    ),
    **{
        (kind, "latin-1"): ([late(kind, "1|w\xe9|1")], rf"/0.{kind}, row {ROWS + 2} .*: .*'s' is not UTF-8; set encod")
        for kind in ("csv", "tsv")
    },
    ("jsonl", "latin-1"): (
        [good("jsonl") + '{"n": 1, "s": "w\xe9", "y": 1}\n'.encode("latin-1")],
        rf"/0.jsonl, row {ROWS + 1} .*: expected UTF-8, got .*; convert the file to UTF-8",
    ),
    **{(kind, "byte order mark"): ([b"\xef\xbb\xbf" + good(kind)], "") for kind in TEXT},
    **{(kind, "a column twice"): ([f"n{m}s{m}n\n1{m}w{m}2\n".encode()], "/0.{suffix}: column 'n' occurs 2")
       for kind, m in (("csv", ","), ("tsv", "\t"))},
    ("jsonl", "a column twice"): (
        [good("jsonl") + b'{"n": 1, "n": 2, "s": "w", "y": 1}\n'],
        rf"/0.jsonl, row {ROWS + 1} .*twice",
    ),
    **{
        (kind, "a column twice"): (
            [content_of(kind, pa.Table.from_arrays([pa.array([1])] * 3, ["n", "y", "n"]))],
            "/0.{suffix}: column 'n' occurs 2 times; rename",
        )
        for kind in STORED
    },
    ("csv", "line ends in quotes"): ([late("csv", QUOTED) + b"x,w,1\n"], rf"0.csv: .*; row {ROWS + 3} .*is 'x'"),
    ("tsv", "line ends in quotes"): ([late("tsv", QUOTED) + b"x\tw\t1\n"], rf"0.tsv: .*; row {ROWS + 3} .*is 'x'"),
    ("jsonl", "line ends in quotes"): ([good("jsonl", words="a\n")], ""),
    **{(kind, "line ends in quotes"): ([good(kind, words="a\n")], "") for kind in STORED},
    **{
        (kind, "other types in another file"): ([good(kind), good(kind, n=["x"] * ROWS)], "/1.{suffix}.*: column 'n' ")
        for kind in STORED
    },
    **{
        (kind, "other types in another file"): (
            [good(kind), good(kind, n=["x"] * ROWS)],
            f"0.{kind} and 1 more files: column 'n': 40 of 80 are whole numbers; row . of .*/1.{kind} .* is ['\"]x",
        )
        for kind in TEXT
    },
    **{(kind, "fractions in another file"): ([good(kind), good(kind, n=[0.5] * ROWS)], "") for kind in SUFFIXES},
    **{
        (kind, "a column less in another file"): (
            [good(kind), content_of(kind, {"n": [1], "y": [1]})],
            "/1.{suffix} has no column 's', which /.*/0.{suffix} has: expected the same columns in all files",
        )
        for kind in SUFFIXES
    },
    **{
        (kind, "a column more in another file"): ([good(kind), good(kind, more=list(range(ROWS)))], "")
        for kind in SUFFIXES
    },
    **{
        (kind, "no rows"): ([content_of(kind, {"n": [], "s": [], "y": []})], "/0.{suffix}: expected records, found")
        for kind in ("csv", "tsv", *STORED)
    },
    **{(kind, "another format"): ([b"PAR1" + b"x" * 60], "/0.{suffix}: the file is a Parquet") for kind in TEXT},
    **{(kind, "another format"): ([good("csv")], "/0.{suffix}: the file cannot be read as") for kind in STORED},
}  # fmt: skip


def written(folder: Path, kind: str, contents: list[bytes]) -> Path:
    for number, content in enumerate(contents):
        (folder / f"{number}.{SUFFIXES[kind]}").write_bytes(content)
    return folder


def opened(kind: str, path: Path, **keys: Any) -> RecordDataset:
    found = open_input(lambda: FORMATS[kind](path=str(path), **{"label": "y", **keys}).read(), non_finite="error")
    assert isinstance(found, RecordDataset)
    return found


@pytest.mark.parametrize(("kind", "fault"), CASES, ids=map("-".join, CASES))
def test_a_fault_is_named_with_file_and_row_before_anything_is_read(kind: str, fault: str, tmp_path: Path) -> None:
    contents, said = CASES[kind, fault]
    folder = written(tmp_path, kind, contents)
    if said:
        with pytest.raises(InputError, match=said.replace("{suffix}", SUFFIXES[kind])):
            opened(kind, folder)
        return
    data = opened(kind, folder)
    assert data.num_records == ROWS * len(contents)
    features, labels = data.read(0, 0, data.num_records)
    assert isinstance(features, dict)
    assert features["s"].tolist() == [i % 3 for i in range(ROWS)] * len(contents)
    assert labels is not None


@pytest.mark.parametrize("kind", SUFFIXES)
def test_an_empty_folder_and_no_file_are_named(kind: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^{tmp_path} has no files that end with .*\.{SUFFIXES[kind]}"):
        opened(kind, tmp_path)
    with pytest.raises(InputError, match=rf"^there is no file {tmp_path}/none"):
        opened(kind, tmp_path / "none")


@pytest.mark.parametrize("kind", SUFFIXES)
def test_a_file_that_changes_is_refused_while_it_is_scanned_and_later(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, kind, [good(kind), good(kind)])
    second = folder / f"1.{SUFFIXES[kind]}"
    data = opened(kind, folder)
    scan = Scan.__iter__

    def changed_meanwhile(self: Scan) -> Iterator[Any]:
        for number, chunk in enumerate(scan(self)):
            if number == 2:
                second.write_bytes(good(kind, words="other word"))
            yield chunk

    monkeypatch.setattr(Scan, "__iter__", changed_meanwhile)
    what = rf"^{second} has changed since it was scanned: its size was \d+, now \d+ bytes; run the command again"
    with pytest.raises(InputError, match=what):
        opened(kind, folder)
    data.read(0, 0, ROWS)
    with pytest.raises(InputError, match=what):
        data.read(0, 0, ROWS + 1)
    second.unlink()
    with pytest.raises(InputError, match=f"^there is no file {second}"):
        data.read(0, ROWS, ROWS + 1)


@pytest.mark.parametrize("kind", SUFFIXES)
def test_rows_are_counted_right_wherever_chunks_end(kind: str, tmp_path: Path) -> None:
    first = {"csv": 2, "tsv": 2, "jsonl": 1}.get(kind, 0)
    for row in range(20, ROWS, 3):
        values: list[Any] = [i if kind == "jsonl" else str(i) for i in range(ROWS)]  # JSON has numbers of its own
        values[row] = "x"
        folder = written(tmp_path, kind, [good(kind, n=values)])
        said = rf"/0.\w+: column 'n': 39 of 40 are whole numbers; row {first + row} .* is ['\"]x['\"]"
        if kind in STORED:  # as strings
            said = rf"/0.\w+.*, row {row} .*expect\w+ a .*number.*, got 'x'"
        with pytest.raises(InputError, match=said):
            opened(kind, folder, columns={"n": ColumnOptions(type="number")})


@pytest.mark.parametrize(
    ("kind", "make", "row"),
    [
        ("csv", lambda n: b"n,y\n" + b"1,0\n" * n + b"x,0\n", 10**6 + 2),
        ("tsv", lambda n: b"n\ty\n" + b"1\t0\n" * n + b"x\t0\n", 10**6 + 2),
        ("jsonl", lambda n: b'{"n":1,"y":0}\n' * n + b'{"n":"x","y":0}\n', 10**6 + 1),
        ("parquet", lambda n: content_of("parquet", million("x", n), 2**17), 10**6),
        ("arrow", lambda n: content_of("arrow", million("x", n), 2**17), 10**6),
    ],
)
def test_a_wrong_value_in_row_a_million_is_named(
    kind: str, make: Callable[[int], bytes], row: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Scan.__init__.__kwdefaults__, "chunk_bytes", 2**20)
    folder = written(tmp_path, kind, [make(10**6)])
    columns = {"n": ColumnOptions(type="number")} if kind in STORED else {}
    said = rf"/0.\w+: column 'n': 1,000,000 of 1,000,001 are whole numbers; row {row} .* is ['\"]x['\"]"
    if kind in STORED:
        said = rf"/0.\w+.*, row {row} .*expect\w+ a .*number.*, got 'x'"
    with pytest.raises(InputError, match=said):
        opened(kind, folder, columns=columns)


def million(last: str, num_rows: int) -> pa.Table:
    ones = pa.DictionaryArray.from_arrays(pa.array(np.append(np.zeros(num_rows, np.int32), 1)), ["1", last])
    return pa.table({"n": ones, "y": pa.array(np.zeros(num_rows + 1, np.int64))})
