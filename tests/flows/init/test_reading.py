"""``psflow init`` finds and reads files: formats, delimiters, stated options, cells that contradict them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from psflow.flows.init.answer import init
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.tabular_files import delimited_file
from psflow.ps_runtime.tabular_files.text_cells import inferred_type
from tests.flows.init.drafts import csv, draft, people, planned


def test_another_delimiter_is_found_and_a_folder_is_read() -> None:
    Path("days").mkdir()
    for day in (1, 2):
        csv(people().replace(",", ";"), f"days/{day}.csv")
    facts = draft("days", "y")
    assert (facts["format"], facts["records"], facts["output"]) == ("csv", 60, "days.yaml")
    parameters, _ = planned("days.yaml")
    assert parameters.input.train.delimiter == ";"  # type: ignore[union-attr]


def test_columns_that_cannot_be_read_are_left_out() -> None:
    table = pa.table({"x": [row % 7 for row in range(30)], "y": ["a", "b", "b"] * 10, "tags": [["a"], []] * 15})
    parquet.write_table(table, "t.parquet")
    facts = draft("t.parquet", "y")
    assert facts["columns"]["tags"]["use"] == "left out"
    planned("t.yaml")


def test_files_are_found_and_their_format_is_known() -> None:
    with pytest.raises(UsageError, match=r"there is no file .*none\.csv"):
        draft("none.csv", "y")
    with pytest.raises(UsageError, match=r"no files with the suffix of a format; choose .* with --format: csv, tsv"):
        draft(csv(people(), "t.data"), "y")
    assert draft("t.data", "y", format_name="csv")["format"] == "csv"
    Path("both").mkdir()
    csv(people(), "both/t.csv")
    csv(people().replace(",", "\t"), "both/t.tsv")
    with pytest.raises(UsageError, match="files of several formats, csv and tsv; choose a format with --format"):
        draft("both", "y")
    with pytest.raises(UsageError, match=r"--format is 'parkett', expected .*; did you mean 'parquet'"):
        draft("both", "y", format_name="parkett")


@pytest.mark.parametrize("path", ["days", "days/*.csv", "days/1.csv"])
def test_tabs_in_csv_files_are_found_and_written_down(path: str) -> None:
    Path("days").mkdir()
    csv(people().replace(",", "\t"), "days/1.csv")
    draft(path, "y", output="t.yaml")
    parameters, plan = planned("t.yaml")
    assert parameters.input.train.delimiter == "\t"  # type: ignore[union-attr]
    assert sum(dataset.num_records for dataset in plan.datasets.values()) == 30


@pytest.mark.parametrize(
    ("text", "overrides", "found"),
    [
        ("x;y\nä;a\nö;b\n" + "ä;b\nö;a\n" * 20, ["encoding=latin-1"], {"encoding": "latin-1", "delimiter": ";"}),
        ("1,a\n2,b\n" * 20, ["column_names=[x, y]"], {"column_names": ("x", "y")}),
        (people(40, x="row % 3 if row % 4 else 'none'"), ["na_values=[none]"], {"na_values": ("none",)}),
        (people(x="row % 3"), ["columns.x.type=string"], {}),
        (people(x="'2026-01-%02d' % (row % 28 + 1)"), ["columns.x.type=number"], {}),
    ],
    ids=str,
)
def test_what_is_stated_of_the_files_is_written_down(text: str, overrides: list[str], found: dict[str, Any]) -> None:
    Path("t.csv").write_bytes(text.encode("latin-1"))
    facts = dict(init("t.csv", "y", overrides, output=None, model=None, format_name=None, overwrites=False).facts)
    parameters, _ = planned("t.yaml")
    train = parameters.input.train
    assert {key: getattr(train, key) for key in found} == found
    stated = {override.rpartition("=")[2] for override in overrides if override.startswith("columns.")}
    assert stated == {facts["columns"]["x"]["options"][key] for key in ("type",) if stated}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("encodign=latin-1", "command line: encodign: expected delimiter, column_names, na_values, encoding, columns"),
        ("columns.x.impute=mean", r"columns\.COLUMN\.impute: expected .*; set other keys in the file that init"),
        ("zero_based=true", "zero_based: expected delimiter, .* of csv"),
        ("delimiter=ab", "the delimiter is 'ab'"),
        ("encoding=5", "the encoding is '5'"),
        ("columns.zz.type=string", "zz"),
        ("columns.x.type=numbr", "number"),
        ("columns=5", "columns"),
    ],
)
def test_only_how_files_are_read_can_be_stated(override: str, words: str) -> None:
    csv(people())
    with pytest.raises(UsageError, match=words):
        init("t.csv", "y", [override], output=None, model=None, format_name=None, overwrites=False)


@pytest.mark.parametrize("path", ["t.CSV", "days"])
def test_suffixes_may_be_in_capitals(path: str) -> None:
    Path("days").mkdir()
    csv(people(), "t.CSV")
    csv(people(), "days/1.CSV")
    assert draft(path, "y", output="t.yaml")["format"] == "csv"
    planned("t.yaml")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("t.csv", r"t\.csv, row 6 \(the header is row 1; .*\): column 'x' expects a whole number"),
        ("t.parquet", r"t\.parquet, row 4 \(the first row is 0\): column 'x' expects a whole number"),
        ("t.jsonl", r"t\.jsonl, row 5.*: column 'x' expects a whole number"),
    ],
)
def test_a_cell_that_is_not_of_the_stated_type_is_named_with_its_row(path: str, words: str) -> None:
    rows = [{"x": 1.5 if row == 4 else row, "y": "ab"[row % 2]} for row in range(30)]
    csv("x,y\n" + "".join(f"{row['x']},{row['y']}\n" for row in rows))
    Path("t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(
        pa.table({"x": [float(row["x"]) for row in rows], "y": [row["y"] for row in rows]}), "t.parquet"
    )
    with pytest.raises(UsageError, match=words):
        init(path, "y", ["columns.x.type=int64"], output=None, model=None, format_name=None, overwrites=False)


@pytest.mark.parametrize(
    ("num_files", "place"),
    [(1, "row 5 (the header is row 1; empty lines do not count)"), (2, "record 5 of 2 files in order")],
)
def test_a_word_that_is_no_number_as_stated_is_left_out_and_named(num_files: int, place: str) -> None:
    csv(people(x="'a' if row == 3 else row % 7"))
    Path("days").mkdir()
    csv(people(x="'a' if row == 4 else row % 7"), "days/1.csv")
    csv(people(x="'b' if row == 3 else row % 7", num_rows=300), "days/2.csv")
    path = "t.csv" if num_files == 1 else "days"
    made = init(path, "y", ["columns.x.type=number"], output=None, model=None, format_name=None, overwrites=False)
    [column] = made.facts["invalid"]
    assert (column["num_cells"], column["first"], column["where"]) == (num_files, "'a'", place)
    assert f"# x: {column['num_values'] - num_files} of {column['num_values']} are whole numbers; {place} is 'a'" in (
        Path(made.facts["output"]).read_text()
    )


def test_the_type_of_a_column_is_inferred_once_and_not_at_all_where_it_is_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[pa.ChunkedArray] = []

    def counted(cells: pa.ChunkedArray) -> str:
        looks.append(cells)
        return inferred_type(cells)

    monkeypatch.setattr(delimited_file, "inferred_type", counted)
    path = csv(people(z="row + 0.25", zip="10000 + row % 4"))
    facts = draft(path, "y", overrides=["columns.zip.type=string"])
    assert facts["columns"]["zip"]["options"]["type"] == "string"
    assert len(looks) == len(["x", "y", "z"])
