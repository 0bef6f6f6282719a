from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.json_lines import JsonLines
from tests.ps_runtime.tabular_files.reading import index_of, read_all, table_of, types_of

JSON = JsonLines()
NOTE = r" \(rows are lines, from 1\): "


FEW_ROWS = 20


@pytest.fixture
def few_inferred_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psflow.ps_runtime.tabular_files.json_lines.INFERRED_ROWS", FEW_ROWS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


def write(path: Path, *lines: Any, end: str = "\n") -> Path:
    path.write_text(end.join(line if isinstance(line, str) else json.dumps(line) for line in lines) + end)
    return path


def test_each_name_is_a_column(path: Path) -> None:
    one = {
        "i": 1,
        "f": 1.5,
        "s": " 1 ",
        "b": True,
        "d": "2024-01-01",
        "t": "2024-01-01T00:00:00Z",
        "a": [1, 2],
        "n": None,
    }
    one["n"] = None
    two = {"a": [3, 4.5], "t": "2024-01-01 00:00:00.5", "f": 2, "x": {"y": [1]}}
    index = index_of(write(path, one, two), JSON, chunk_bytes=8)
    assert types_of(index) == {
        "i": "int64",
        "f": "float64",
        "s": "string",
        "b": "bool",
        "d": "date",
        "t": "timestamp",
        "a": "float64[2]",
        "n": "float64",
    }
    assert set(index.unreadable) == {"x"}
    first = {**one, "d": datetime.date(2024, 1, 1), "t": datetime.datetime(2024, 1, 1)}
    second = dict.fromkeys(one) | {"a": [3.0, 4.5], "t": datetime.datetime(2024, 1, 1, microsecond=500_000), "f": 2.0}
    assert read_all(index).to_pylist() == [first, second]


@pytest.mark.parametrize("text", ['{"a":1}\n{"a":2}', '\ufeff{"a":1}\r\n{"a":2}\r\n', '{"a":1}\n{"a":2}\n\n \n'])
def test_spellings_of_lines(path: Path, text: str) -> None:
    path.write_text(text)
    assert table_of(path, JSON, chunk_bytes=4).to_pydict() == {"a": [1, 2]}


@pytest.mark.usefixtures("few_inferred_rows")
def test_numbers_widen_where_a_fraction_appears(path: Path) -> None:
    write(path, *[{"a": 1, "v": [1, 2]}] * FEW_ROWS, {"a": 1.5, "v": [1, 2]}, {"a": 1, "v": [0.5, 2]})
    index = index_of(path, JSON, chunk_bytes=30)
    assert types_of(index) == {"a": "float64", "v": "float64[2]"}
    assert read_all(index).slice(FEW_ROWS).to_pydict() == {"a": [1.5, 1.0], "v": [[1.0, 2.0], [0.5, 2.0]]}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (
            {"a": "x"},
            r"column 'a' expects a whole number \(int64\), got \"x\"; correct the line, or leave",
        ),
        ({"a": 2**63}, "column 'a' expects a whole number .*, got 9223372036854775808"),
        ({"v": [1.5, "x"]}, r"column 'v' expects int64\[2\], got \[1.5, \"x\"\]"),
        ({"a": True}, "column 'a' expects a whole number .*, got true"),
        ({"a": {"b": 1}}, "column 'a' expects a whole number"),
        ({"v": [1]}, r"column 'v' expects int64\[2\], got a list of 1"),
        ({"d": "2024-13-01"}, r"column 'd' expects a date \(YYYY-MM-DD\), got '2024-13-01'"),
        ({"d": 5}, r"column 'd' expects a date \(YYYY-MM-DD\), got 5"),
        ([1], r"expected a JSON object in each line, got '\[1\]'; write each object of the list on its own line"),
        ("3", "expected a JSON object in each line, got '3'"),
        ('{"a": 1', "expected a JSON object in each line, got '{\"a\": 1'"),
        ('{"a": 1, "a": 2}', "pyarrow rejects the line: JSON parse error: .* was specified twice$"),
        ("", "expected a JSON object in each line, got ''"),
        ('{"a": 1} {"a": 2}', r"expected a JSON object in each line, got '{\"a\": 1} {\"a\": 2}'"),
        ('{"a":\n1}', "expected a JSON object in each line, got '{\"a\":'"),
    ],
)
@pytest.mark.usefixtures("few_inferred_rows")
def test_a_wrong_late_line_is_named(path: Path, line: Any, fault: str) -> None:
    good = {"a": 1, "v": [1, 2], "d": "2024-01-01"}
    write(path, *[good] * (FEW_ROWS + 50), line, *[good] * 20)
    with pytest.raises(InputError, match=rf"^/.*/t.jsonl, row {FEW_ROWS + 51}{NOTE}{fault}"):
        table_of(path, JSON, chunk_bytes=500)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b'{"a": "\xe9"}\n', f"row 1{NOTE}expected UTF-8, got .*; convert the file to UTF-8"),
        (b"a,b\n1,2\n", f"row 1{NOTE}expected a JSON object in each line, got 'a,b'"),
        (b'[\n{"a": 1}\n]\n', rf"row 1{NOTE}expected a JSON object in each line, got '\['"),
        (b'{"a": 1}\n{"a": "x"}\n', "t.jsonl: column 'a' is int64 or string: expected numbers, strings, booleans"),
        (b'{"a": 9223372036854775808}\n', "t.jsonl: column 'a' is integer beyond int64: expected numbers"),
        (b"\n \n", "t.jsonl: expected at least one column to read, got none"),
        (b"{}\n{}\n", "t.jsonl: expected at least one column to read, got none"),
        (b"\x1f\x8b\x08", "t.jsonl: the file is compressed by gzip"),
        (b'{"x": {"y": 1}}\n', "t.jsonl: column 'x' is object: expected numbers, strings, booleans"),
    ],
)
def test_what_are_no_lines_of_json(path: Path, content: bytes, fault: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=fault):
        table_of(path, JSON)


def test_nested_columns_are_no_fault_until_someone_asks(path: Path) -> None:
    first = {"a": 1, "x": {"y": 1}, "z": [True, 2], "w": [], "m": 1.5}
    write(path, first, {"a": 2, "x": {"y": "no"}, "z": [1], "w": [], "m": "x"})
    assert table_of(path, JSON).to_pydict() == {"a": [1, 2]}
    for name, kind in (
        ("x", "object"),
        ("z", r"int64\[1\] or list of bool or int64"),
        ("w", "list"),
        ("m", "float64 or string"),
    ):
        with pytest.raises(InputError, match=f"column '{name}' is {kind}: expected numbers, .*; leave it out"):
            table_of(path, JSON, columns=["a", name])


def test_lists_may_have_any_length(path: Path) -> None:
    write(
        path,
        {"w": ["x", None], "n": [1, 2], "f": [1]},
        {"w": [], "n": [1], "f": [0.5, 2]},
        {"w": None, "n": [], "f": []},
    )
    table = table_of(path, JSON)
    found = {"w": [["x", None], [], None], "n": [[1, 2], [1], []], "f": [[1.0], [0.5, 2.0], []]}
    assert table.to_pydict() == found
    write(path, {"w": ["x"]}, {"w": [1]})
    with pytest.raises(InputError, match=r"row 2.*\[1\]"):
        table_of(path, JsonLines(types={"w": "string[]"}))


def test_types_can_be_set(path: Path) -> None:
    table = table_of(
        write(path, {"a": 1, "v": [1, 2], "d": "2024-01-01"}),
        JsonLines(types={"a": "number", "v": "float32[2]", "d": "string"}),
    )
    assert table.to_pylist() == [{"a": 1.0, "v": [1.0, 2.0], "d": "2024-01-01"}]
    assert str(table.schema.field("v").type).startswith("fixed_size_list<item: float>[2]")


def test_a_column_that_a_file_lacks_is_named(tmp_path: Path) -> None:
    write(tmp_path / "0.jsonl", {"a": 1, "b": 2})
    write(tmp_path / "1.jsonl", {"a": 1}, {"b": 2})
    assert table_of(tmp_path, JSON).to_pydict() == {"a": [1, 1, None], "b": [2, None, 2]}
    write(tmp_path / "2.jsonl", {"a": 1}, {"a": 2})
    with pytest.raises(InputError, match=r"^/.*/2.jsonl has no column 'b', which /.*/0.jsonl has"):
        table_of(tmp_path, JSON)
