from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.base import InvalidValues
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.listing import list_files
from psflow.ps_runtime.tabular_files.scan import Scan
from psflow.ps_runtime.tabular_files.text_cells import parse_cells
from tests.ps_runtime.tabular_files.reading import index_of, read_all, rewrite, table_of, types_of

NOTE = r" \(the header is row 1; empty lines do not count\): "


FEW_ROWS = 20


@pytest.fixture
def few_inferred_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psflow.ps_runtime.tabular_files.delimited_file.INFERRED_ROWS", FEW_ROWS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a,b\n1,x\n2,y\n", {}),
        ("\ufeffa,b\r\n1,x\r\n\r\n2,y", {}),
        ("\n\r\na,b\n 1,  x\n2 ,y \n", {}),
        ('"a","b"\n"1","x"\n"2","y"\n\n\n', {}),
        ("a,b\r1,x\r2,y\r", {}),
        ("a;b\n1;x\n2;y\n", {"delimiter": ";"}),
        ("a\tb\n1\tx\n2\ty\n", {"delimiter": "\t"}),
        ("1,x\n2,y\n", {"column_names": ["a", "b"]}),
        ("\ufeff1,x\n2,y\n", {"column_names": ["a", "b"]}),
    ],
)
def test_spellings_of_a_table(tmp_path: Path, text: str, options: dict[str, Any]) -> None:
    text_format = DelimitedText(**options)
    index = index_of(write(tmp_path / f"t{text_format.suffixes[0]}", text), text_format, chunk_bytes=4)
    assert types_of(index) == {"a": "int64", "b": "string"}
    assert read_all(index).to_pydict() == {"a": [1, 2], "b": ["x", "y"]}


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1", " -2 ", ""], "int64", [1, -2, None]),
        (["1", "2.5", "NA", "1e3"], "float64", [1.0, 2.5, None, 1000.0]),
        (["true", "False", "nan"], "bool", [True, False, None]),
        (["1", "true"], "bool", [True, True]),
        (["1", "yes"], "string", ["1", "yes"]),
        (["2024-02-29", "null"], "date", [datetime.date(2024, 2, 29), None]),
        (["2024-02-30"], "string", ["2024-02-30"]),
        (
            ["2024-02-29", "2024-03-01 12:30"],
            "timestamp",
            [datetime.datetime(2024, 2, 29), datetime.datetime(2024, 3, 1, 12, 30)],
        ),
        (
            ["2024-01-01T00:00:00+02:00", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00.123456789"],
            "timestamp",
            [
                datetime.datetime(2023, 12, 31, 22),
                datetime.datetime(2024, 1, 1),
                datetime.datetime(2024, 1, 1, microsecond=123456),
            ],
        ),
        (["", "NA", " N/A"], "float64", [None, None, None]),
        (["9223372036854775807"], "int64", [2**63 - 1]),
        (["9223372036854775808", "1"], "string", ["9223372036854775808", "1"]),  # a float64 would lose digits
        (["9" * 5000, "1"], "string", ["9" * 5000, "1"]),
        (["x", "  NULL  ", '" y "', '"a, ""b""\n c"'], "string", ["x", None, "y", 'a, "b"\n c']),
        (["é€", "x"], "string", ["é€", "x"]),
    ],
)
def test_types_are_inferred_over_all_first_cells(path: Path, cells: list[str], kind: str, values: list[Any]) -> None:
    index = index_of(write(path, "i,a\n" + "".join(f"{i},{cell}\n" for i, cell in enumerate(cells))), chunk_bytes=8)
    assert types_of(index)["a"] == kind
    assert read_all(index)["a"].to_pylist() == values


def test_names_are_as_they_are_written(path: Path) -> None:
    text = ' a,b ,c d,"e "\n1,2,3,4\n'
    assert table_of(write(path, text)).column_names == [" a", "b ", "c d", "e "] == list(pd.read_csv(path))
    with pytest.raises(InputError, match="no column 'a'; did you mean ' a'"):
        table_of(path, columns=["a"])


def test_missing_values_with_spaces_around_are_missing_values_in_columns_of_any_type(path: Path) -> None:
    rows = [
        "n,s,d,t,b",
        "1, x, 2024-01-01, 2024-01-01 00:00, true",
        " ?, ?, ?, ?, ?",
        "2, y, 2024-01-02, 2024-01-01, 0",
    ]
    text = "\n".join(rows)
    table = table_of(write(path, text), DelimitedText(na_values=["?"]))
    assert table.slice(1, 1).to_pylist() == [dict.fromkeys("nsdtb")]
    assert [column.null_count for column in table.columns] == [1] * 5
    assert [str(kind) for kind in table.schema.types] == ["int64", "string", "date32[day]", "timestamp[us]", "bool"]


def test_an_empty_cell_is_missing_whatever_na_values_are(path: Path) -> None:
    table = table_of(write(path, 'n,s\n1,x\n,""\n?,NA\n'), DelimitedText(na_values=["?"]))
    assert table.to_pydict() == {"n": [1, None, None], "s": ["x", None, "NA"]}


def test_types_can_be_set(path: Path) -> None:
    types = {"zip": "string", "n": "number", "f": "float32", "b": "bool", "t": "timestamp"}
    table = table_of(write(path, "zip,n,f,b,t\n00123,1,1.5,1,2024-01-01\n"), DelimitedText(types=types))
    assert table.to_pylist() == [{"zip": "00123", "n": 1.0, "f": 1.5, "b": True, "t": datetime.datetime(2024, 1, 1)}]
    assert [str(kind) for kind in table.schema.types] == ["string", "double", "float", "bool", "timestamp[us]"]


@pytest.mark.usefixtures("few_inferred_rows")
def test_integers_widen_where_a_fraction_appears(path: Path) -> None:
    write(path, "a,b\n" + "1,1\n" * FEW_ROWS + "1.5,2\n" + "2,3\n")
    scan = Scan(list_files(path, [".csv"]), DelimitedText(), chunk_bytes=30)
    kinds = [str(chunk.table["a"].type) for chunk in scan]
    assert kinds == sorted(kinds, reverse=True)
    assert set(kinds) == {"int64", "double"}
    assert types_of(scan.index()) == {"a": "float64", "b": "int64"}
    assert read_all(scan.index())["a"].to_pylist() == [1.0] * FEW_ROWS + [1.5, 2.0]
    with pytest.raises(InputError, match=rf"row {FEW_ROWS + 2}{NOTE}column 'a' expects a whole number"):
        table_of(path, DelimitedText(types={"a": "int64"}))


@pytest.mark.parametrize(
    ("cell", "types", "fault"),
    [
        ("x1", {}, r"column 'n' expects a whole number \(int64\), got 'x1'; if the value is right, train with columns"),
        ("12345678901234567890", {}, "got '12345678901234567890'"),  # as float64 it would lose digits
        ("1e3x", {"n": "number"}, "expects a number, got '1e3x'"),
        ("yes", {"n": "bool"}, "expects true or false, got 'yes'"),
        ("2024-13-01", {"n": "date"}, r"expects a date \(YYYY-MM-DD\), got '2024-13-01'"),
        ("noon", {"n": "timestamp"}, r"expects a time \(YYYY-MM-DD HH:MM:SS\), got 'noon'"),
    ],
)
@pytest.mark.usefixtures("few_inferred_rows")
def test_a_wrong_value_in_a_late_row_is_named_with_its_row(
    path: Path, cell: str, types: dict[str, str], fault: str
) -> None:
    fill = {"date": "2024-01-01", "timestamp": "2024-01-01"}.get(types.get("n", ""), "1")
    rows = [f'{i},"two\nlines",{fill}\n' for i in range(FEW_ROWS + 50)]
    rows[-3] = f'0,"a""b\n", {cell} \n\n'
    text = "i,s,n\n" + "".join(rows)
    with pytest.raises(InputError, match=rf"^/.*/t.csv, row {len(rows) - 1}{NOTE}.*{fault}"):
        table_of(write(path, text), DelimitedText(types=types), chunk_bytes=100)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a,b\n1,2\n\n3,4,5\n", f"row 3{NOTE}expected 2 cells, got 3: '3,4,5'; a cell that contains the delimiter"),
        ("a,b\n" + "1,2\n" * 30 + "3\n" + "1,2\n" * 30, f"row 32{NOTE}expected 2 cells, got 1: '3'; a cell is missing"),
        (
            "Report\na,b\n1,2\n",
            f"row 2{NOTE}expected 1 cells, got 2: 'a,b'; the first row must name all columns: remove",
        ),
        ("a,b\n1,2\n   \n", f"row 3{NOTE}expected 2 cells, got 1: '   '; remove the line"),
        ("a,b\n1,2\n\x1a", f"row 3{NOTE}expected 2 cells, got 1: .*; remove the line"),
        ("a,b\n1,2,\n3,4,\n", f"row 2{NOTE}expected 2 cells, got 3: '1,2,'; the row ends with ',': end the header"),
        ("a\0,b\n1,2\n", "t.csv: the first row has a NUL byte; the file is damaged, or UTF-16 or UTF-32: convert it"),
        ("a,b\n1,2\n".encode("utf-16-le"), "t.csv: the first row has a NUL byte; the file is damaged, or UTF-16"),
        ("a,b\n1,2\n".encode("utf-32"), "t.csv: the file is UTF-32: convert it to UTF-8"),
        (b"a,b\n1,2\n\xff,3,4\n", f"row 3{NOTE}expected 2 cells, got 3: "),
        ('a,b\n1,"x\n2,y\n', f"row 2{NOTE}the quote that begins .* does not close"),
        ("a,b\n" + "1,2\n" * 30 + '1,"cut', f"row 32{NOTE}the quote that begins '\"cut' does not close"),
        ('a,"b\n1,2\n', "t.csv: a quote in the first row does not close; the first row must name"),
        (
            b"a,b\n1,x\n2,\xe9t\xe9\n",
            f"row 3{NOTE}b'\\\\xe9t\\\\xe9' in column 'b' is not UTF-8; set encoding, such as",
        ),
        (b"a,\xe9\n1,x\n", "t.csv: the first row is not utf-8; set encoding, such as latin-1 or cp1252"),
        ("a,b\n1,2\n" + "1,2\n" * 20 + "1,2\0\n", f"row 23{NOTE}expected text, got a NUL byte"),
        ("a,b,a\n1,2,3\n", "t.csv: column 'a' occurs 2 times; the first row must name the columns"),
        ("0.5,1,2\n1,2,3\n", "t.csv: the first row holds numbers, 0.5, 1, 2; .* set column_names"),
        ("5,1\n1,2\n", "t.csv: the first row holds numbers, 5, 1; .* set column_names"),
        ("a,b\n", "t.csv: expected records, found none"),
        ("a,b\n\n\r\n\n", "t.csv: expected records, found none"),
        ("\n\n", "t.csv: expected a first row with names of columns"),
        (b"\x1f\x8b\x08\0", "t.csv: the file is compressed by gzip: decompress it first"),
        (b"PK\x03\x04", "t.csv: the file is a zip file"),
        (b"PAR1....", "t.csv: the file is a Parquet file, not text"),
        ("a,b\n1,2\n".encode("utf-16"), "t.csv: the file is UTF-16: convert it to UTF-8"),
    ],
)
def test_what_is_no_table(path: Path, text: str | bytes, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        table_of(write(path, text), chunk_bytes=16)


def test_a_record_without_end_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psflow.ps_runtime.tabular_files.text_file.MAX_RECORD_BYTES", 1000)
    write(path, "a,b\n" + '1,"' + "x" * 900 + '"\n' + '2,"' + "x" * 1500 + '"\n')
    with pytest.raises(
        InputError, match=rf"row 3{NOTE}the record is longer than 1000 bytes; is a quote in it not closed"
    ):
        table_of(path, chunk_bytes=16)
    write(path, "a,b\n" + ('1,"' + "x" * 900 + '"\n') * 9)
    assert table_of(path, chunk_bytes=16).num_rows == 9


def test_another_encoding_can_be_set(path: Path) -> None:
    write(path, "Größe,b\n1,é\n2,ß\n".encode("latin-1"))
    table = table_of(path, DelimitedText(encoding="latin-1"), chunk_bytes=4)
    assert table.to_pydict() == {"Größe": [1, 2], "b": ["é", "ß"]}
    write(path, b"a,b\n" + b"1,x\n" * 9 + b"1,\x81\n")
    with pytest.raises(InputError, match=f"row 11{NOTE}b'.x81.n' is not cp1252; set encoding"):
        table_of(path, DelimitedText(encoding="cp1252"))


def test_names_may_count_and_an_index_without_a_name_is_left_out(path: Path) -> None:
    assert table_of(write(path, "0,1\n5,6\n")).column_names == ["0", "1"]
    assert table_of(write(path, "1990,1991,y\n5,6,7\n")).column_names == ["1990", "1991", "y"]
    assert table_of(write(path, ",a,\n0,5,x\n")).to_pydict() == {"a": [5]}


def test_files_have_the_same_columns_in_any_order(tmp_path: Path) -> None:
    write(tmp_path / "0.csv", "a,b\n")  # it has no records, and says nothing of types
    write(tmp_path / "1.csv", "a,b\n1,x\n")
    write(tmp_path / "2.csv", "more,b,a\n0,y,2.5\n")
    table = table_of(tmp_path)
    assert table.to_pydict() == {"a": [1.0, 2.5], "b": ["x", "y"]}
    write(tmp_path / "3.csv", "a,c\n1,2\n")
    with pytest.raises(InputError, match=r"^/.*/3.csv has no column 'b', which /.*/1.csv has: expected the same"):
        table_of(tmp_path)
    assert table_of(tmp_path, columns=["a"]).num_rows == 3
    write(tmp_path / "4.csv", "a,b\n?,2\n")
    with pytest.raises(InputError, match=rf"^/.*/4.csv, row 2{NOTE}column 'a' expects a number, got '\?'"):
        table_of(tmp_path, columns=["a"])


def test_columns_are_selected_by_name(path: Path) -> None:
    write(path, b"a,b,c\n1,\xe9,3\n")
    assert table_of(path, columns=["c", "a"]).to_pydict() == {"c": [3], "a": [1]}  # what b is does not matter
    with pytest.raises(InputError, match=r"t.csv has no column 'aa'; did you mean 'a'\?"):
        table_of(path, columns=["aa"])
    with pytest.raises(InputError, match=r"t.csv has no column 'C'"):
        table_of(path, DelimitedText(types={"C": "string"}))


def test_all_wrong_options_are_reported_together() -> None:
    with pytest.raises(InputError) as caught:
        DelimitedText(
            delimiter='"',
            column_names=["a", "a"],
            encoding="utf-16",
            types={"a": "dat", "b": "float32[2]", "c": "string[2]"},
        )
    for option, value in (("na_values", "NA"), ("column_names", "abc")):
        with pytest.raises(InputError, match=f"{option} is '{value}': expected a list of texts"):
            DelimitedText(**{option: value})
    kinds = "int64, float32, float64, string, bool, date, timestamp"
    arrays = f"expected one of {kinds}, number, or a number type with a length, such as float32[64]"
    assert caught.value.faults == (
        f"the type of column 'a' is 'dat': {arrays}; did you mean 'date'?",
        f"the type of column 'c' is 'string[2]': {arrays}; did you mean 'string'?",
        "the delimiter is '\"': expected one ASCII character, no quote, no line end",
        "column_names is ['a', 'a']: expected at least one name, each once",
        "the encoding is 'utf-16': expected utf-8, or one with a byte for each character",
        f"the type of column 'b' is 'float32[2]': a text cell is one of {kinds}",
        f"the type of column 'c' is 'string[2]': a text cell is one of {kinds}",
    )


@pytest.mark.parametrize("encoding", ["gbk", "utf-7", "cp037", "klingon", "shift_jis", "hex"])
def test_encodings_whose_bytes_may_look_like_quotes_are_refused(encoding: str) -> None:
    with pytest.raises(InputError, match=f"the encoding is '{encoding}'"):
        DelimitedText(encoding=encoding)


def test_a_file_that_changes_while_it_is_scanned_is_refused(path: Path) -> None:
    text = b"a,b\n" + b"1,2\n" * 100
    scan = iter(Scan(list_files(write(path, text), [".csv"]), DelimitedText(), chunk_bytes=64))
    next(scan)
    rewrite(path, text.replace(b"2", b"3"))
    with pytest.raises(InputError, match="has changed since it was scanned: it was rewritten"):
        next(scan)
    scan = iter(Scan(list_files(path, [".csv"]), DelimitedText(), chunk_bytes=64))
    next(scan)
    write(path, b"a,b\n")
    with pytest.raises(InputError, match="its size was 404, now 4 bytes"):
        next(scan)


def test_a_scan_says_how_far_it_is(path: Path, tmp_path: Path) -> None:
    write(path, "a\n" + "1\n" * 7)
    write(tmp_path / "u.csv", "a\n" + "1\n" * 3)
    scan = Scan(list_files(tmp_path, [".csv"]), DelimitedText(), chunk_bytes=8)
    with pytest.raises(RuntimeError, match="iterate over it first"):
        scan.index()
    assert [(chunk.table.num_rows, chunk.done_bytes, chunk.num_bytes) for chunk in scan] == [
        (4, 10, 24),
        (3, 16, 24),
        (3, 24, 24),
    ]
    assert [chunk.done_bytes for chunk in scan] == [10, 16, 24]  # a scan of its own
    assert scan.index().num_records == 10


@pytest.mark.parametrize(
    ("raw", "cells"),
    [
        ("int64", ["1", "-5", "007"]),
        ("float64", ["1", "-1.5", ".5", "1.", "1e5", "1E+05", "nan", "-Inf", "infinity", "NaN(1)"]),
        ("bool", ["true", "FALSE", "1", "0"]),
        ("date", ["2024-01-31", "1999-12-01"]),
        ("timestamp", ["2024-01-31", "2024-01-31 10:00", "2024-01-31T10:00:00.5Z", "2024-01-31 10"]),
    ],
)
def test_what_is_of_a_type_looks_so(raw: str, cells: list[str]) -> None:
    invalid: list[InvalidValues] = []
    for cell in cells:
        parse_cells(pa.chunked_array([[cell]]), raw, "c")
    parsed = parse_cells(pa.chunked_array([[*cells, "x", None, *cells]]), raw, "c", invalid.append)
    [values] = invalid
    assert (values.rows.tolist(), values.shown) == ([len(cells)], ("'x'",))
    assert parsed.null_count == 2


def test_a_header_is_no_record_where_the_columns_have_been_given_its_names(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", "5,6\n")
    write(tmp_path / "2.csv", "a, b\n7,8\n")
    with pytest.raises(
        InputError, match=r"2\.csv: the first row is not a record, but repeats column_names: a, b; leave column_names"
    ):
        index_of(tmp_path, DelimitedText(column_names=["a", "b"]))
    assert (
        table_of(tmp_path, DelimitedText(column_names=["b", "a"], types={"a": "string", "b": "string"})).num_rows == 3
    )


def test_a_column_that_came_after_an_earlier_look_has_its_type_looked_for(tmp_path: Path) -> None:
    files = list_files(write(tmp_path / "late.csv", "a,b\n1,x\n"), [".csv"])
    scan = Scan(files, DelimitedText(), known={"a": "int64"})
    assert [(column.name, column.type) for column in scan.columns] == [("a", "int64"), ("b", "string")]
