"""Files below folders such as year=2024, as pandas, Spark and Hive write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.record_formats import Csv, ParquetInput
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.arrow_file import ArrowFile
from psflow.ps_runtime.tabular_files.base import RecordFormat
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.json_lines import JsonLines
from psflow.ps_runtime.tabular_files.listing import list_files
from psflow.ps_runtime.tabular_files.parquet import Parquet
from psflow.ps_runtime.tabular_files.partitions import partition_cells
from tests.ps_runtime.tabular_files.reading import index_of, read_all, table_of, types_of

PARQUET = Parquet()
FRAME = pd.DataFrame(
    {
        "x": np.arange(12.0),
        "year": np.repeat([2023, 2024], 6),
        "town": ["New York", "Bern/Wabern", "Bern"] * 4,
        "y": [0, 1] * 6,
    }
)


def write(path: Path, frame: pd.DataFrame, record_format: RecordFormat) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    match record_format:
        case Parquet():
            frame.to_parquet(path)
        case ArrowFile():
            frame.to_feather(path)
        case JsonLines():
            frame.to_json(path, orient="records", lines=True)
        case _:
            frame.to_csv(path, index=False)


def rows_of(table: Any) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["x"])


def test_folders_that_pandas_writes_are_columns(tmp_path: Path) -> None:
    FRAME.to_parquet(tmp_path / "all", partition_cols=["year", "town"])
    index = index_of(tmp_path / "all", PARQUET)
    assert types_of(index) == {"x": "float64", "y": "int64", "year": "int64", "town": "string"}
    assert rows_of(read_all(index)) == FRAME[["x", "y", "year", "town"]].to_dict("records")
    assert rows_of(table_of(tmp_path / "all" / "year=2024", PARQUET, columns=["town", "x"])) == (
        FRAME[["town", "x"]][6:].to_dict("records")
    )
    assert table_of(tmp_path / "all", PARQUET, columns=["year"])["year"].to_pylist() == [2023] * 6 + [2024] * 6


@pytest.mark.parametrize("record_format", [DelimitedText(), JsonLines(), ArrowFile()])
def test_files_of_every_format_have_them(record_format: RecordFormat, tmp_path: Path) -> None:
    suffix = record_format.suffixes[0]
    for year, rows in FRAME.groupby("year"):
        write(tmp_path / f"year={year}" / f"0{suffix}", rows.drop(columns="year").reset_index(drop=True), record_format)
    assert rows_of(table_of(tmp_path, record_format, columns=["x", "year"])) == FRAME[["x", "year"]].to_dict("records")


@pytest.mark.parametrize("given", ["", "0.parquet", "*.parquet", "**/*.parquet"])
def test_folders_above_what_is_given_are_no_columns(given: str, tmp_path: Path) -> None:
    folder = tmp_path / "user=bob" / "exp=3"
    write(folder / "0.parquet", FRAME[["x"]], PARQUET)
    assert types_of(index_of(folder / given, PARQUET)) == {"x": "float64"}
    index = index_of(tmp_path / "user=bob", PARQUET)
    assert types_of(index) == {"x": "float64", "exp": "int64"}
    assert types_of(index_of(tmp_path / "user=bob" / "*" / "0.parquet", PARQUET)) == {"x": "float64", "exp": "int64"}
    assert read_all(type(index).from_bytes(index.to_bytes()))["exp"].to_pylist() == [3] * 12


def test_what_the_file_stores_counts_more_than_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "year=1" / "0.parquet", FRAME, PARQUET)
    assert table_of(tmp_path, PARQUET)["year"].to_pylist() == FRAME["year"].tolist()


def test_types_are_those_of_all_folders(tmp_path: Path) -> None:
    for part, named in enumerate(("a=1/b=1", "a=2.5/b=x", "a=__HIVE_DEFAULT_PARTITION__/b=3")):
        write(tmp_path / named / "0.parquet", FRAME[["x"]][part : part + 1].reset_index(drop=True), PARQUET)
    index = index_of(tmp_path, PARQUET)
    assert types_of(index) == {"x": "float64", "a": "float64", "b": "string"}
    assert rows_of(read_all(index)) == [
        {"x": 0.0, "a": 1.0, "b": "1"},
        {"x": 1.0, "a": 2.5, "b": "x"},
        {"x": 2.0, "a": None, "b": "3"},
    ]
    assert table_of(tmp_path, Parquet(types={"a": "string"}))["a"].to_pylist() == ["1", "2.5", None]


@pytest.mark.parametrize(
    "given", ["", "year=*", "year=*/*.parquet", ["year=1", "year=2"], ["year=1/*", "year=2/0.parquet"]]
)
def test_a_folder_a_glob_and_a_list_have_the_same_columns(given: str | list[str], tmp_path: Path) -> None:
    for year in (1, 2):
        write(tmp_path / f"year={year}" / "0.parquet", FRAME[["x"]][:2].reset_index(drop=True), PARQUET)
    paths = [str(tmp_path / path) for path in ([given] if isinstance(given, str) else given)]
    files = list_files(paths, PARQUET.suffixes)
    assert [partition_cells(file) for file in files] == [{"year": "1"}, {"year": "2"}]


def test_a_list_has_the_folders_that_tell_its_paths_apart(tmp_path: Path) -> None:
    paths = [f"run=7/year={year}/{name}" for year in (1, 2) for name in ("month=1/0.parquet", "month=2/0.parquet")]
    for path in [*paths, "0.parquet"]:
        write(tmp_path / path, FRAME[["x"]][:2].reset_index(drop=True), PARQUET)
    days, stray = [str(tmp_path / path) for path in paths], str(tmp_path / "0.parquet")
    found = [partition_cells(file) for file in list_files(days, PARQUET.suffixes)]
    assert found == [{"year": year, "month": month} for year in "12" for month in "12"]
    of_one_year = [partition_cells(file) for file in list_files(days[:2], PARQUET.suffixes)]
    assert of_one_year == [{"month": "1"}, {"month": "2"}]
    assert not any(partition_cells(file) for file in list_files([days[0], stray], PARQUET.suffixes))


def test_a_folder_without_the_name_lacks_the_column(tmp_path: Path) -> None:
    for folder in ("year=1", "z"):
        write(tmp_path / folder / "0.parquet", FRAME[["x"]], PARQUET)
    with pytest.raises(InputError, match=r"z/0.parquet has no column 'year', which .*/year=1/0.parquet has"):
        table_of(tmp_path, PARQUET)


@pytest.mark.parametrize("kind", [Csv, ParquetInput])
def test_later_inputs_have_the_types_of_training(kind: type[Csv | ParquetInput], tmp_path: Path) -> None:
    record_format = kind(path="-").record_format()
    for region, rows in enumerate((FRAME[:6], FRAME[6:])):
        path = tmp_path / f"region={'eu' if region else 7}" / f"0{kind.suffixes[0]}"
        write(path, rows.drop(columns=["year", "town"]).reset_index(drop=True), record_format)
    trained = kind(path=str(tmp_path), label="y", columns={"x": ColumnOptions(normalize="standard")}).read()
    schema = trained.learn("error", "the train input").schema()
    later = kind(path=str(tmp_path / "region=7")).read()
    of_eval = later.open(schema, "error", "the eval input", needs_labels=True).read(0, 0, 6)[0]["region"]
    of_training = trained.open(schema, "error", "the input", needs_labels=True).read(0, 0, 12)[0]["region"]
    assert sorted(of_training.tolist()) == [0] * 6 + [1] * 6
    assert of_eval.tolist() == of_training[:6].tolist()
    assert [column.type for column in later.index(schema, print).index.columns if column.name == "region"] == ["string"]
    one = later.index(schema, print).index
    assert read_all(type(one).from_bytes(one.to_bytes()))["region"].to_pylist() == ["7"] * 6
    assert "region" not in kind(path=str(tmp_path / "region=7"), label="y").read().scan(list)[1]
