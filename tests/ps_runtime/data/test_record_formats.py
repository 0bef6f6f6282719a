"""Tabular files as a program describes them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import psflow
from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.record_formats import ArrowInput, Csv, JsonLinesInput, LibSvm, ParquetInput, TabularFiles
from psflow.ps_runtime.errors import ArgumentTypeError, InputError, UsageError
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.tabular_files import parquet
from psflow.ps_runtime.tabular_files.delimited_file import OpenDelimited


def test_every_format_of_record_files_is_a_public_name() -> None:
    kinds = [kind for kind in FORMATS.values() if issubclass(kind, TabularFiles)]
    assert len(kinds) == 6
    assert all(getattr(psflow, kind.__name__) is kind for kind in kinds)


def test_a_path_needs_no_name() -> None:
    assert Csv("a.csv", label="y") == Csv(path="a.csv", label="y")


def test_what_says_the_same_is_the_same() -> None:
    plain = Csv("a.csv", label="y", key_columns=["id"], features=["a", "b"], part=[0, 0.5], na_values=["?"])
    names = np.array(["a", "b"])
    given = Csv(Path("a.csv"), label=np.str_("y"), key_columns=("id",), features=names, part=np.array([0, 0.5]))
    assert replace(given, na_values=(word for word in "?")) == plain
    assert Csv([Path("a.csv"), "b.csv"]).path == ("a.csv", "b.csv")
    assert LibSvm("a.svm", num_features=np.int64(3), zero_based=np.True_) == LibSvm(
        "a.svm", num_features=3, zero_based=True
    )


def test_none_is_nothing_of_columns_and_groups() -> None:
    empty: dict[str, Any] = {"key_columns": None, "columns": None, "groups": None, "crosses": None}
    assert Csv("a.csv", **empty) == Csv("a.csv")


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"path": None}, "path is None, expected text, a path or a list of texts or paths"),
        ({"path": 3}, "path is 3, expected text, a path or a list"),
        ({"path": b"a.csv"}, "path is b'a.csv', expected text, a path or a list"),
        ({"path": {"a.csv": 1}}, "path is {'a.csv': 1}, expected text"),
        ({"path": ["a.csv", 3]}, r"path\[1\] is 3, expected text or a path"),
        ({"label": 3}, "label is 3, expected text, LabelOptions or None"),
        ({"label": ["y"]}, r"label is \['y'\], expected text, LabelOptions or None"),
        ({"label": {"column": "y"}}, "label is {'column': 'y'}, expected text, LabelOptions or None"),
        ({"weight": 2.5}, "weight is 2.5, expected text or None"),
        ({"weight": Path("w")}, "weight is PosixPath.'w'., expected text or None"),
        ({"key_columns": "id"}, r"key_columns is 'id', expected a list of texts, such as \['id'\]"),
        ({"key_columns": {"id"}}, "key_columns is {'id'}, expected a list of texts"),
        ({"features": "age"}, r"features is 'age', expected a list of texts or None, such as \['age'\]"),
        ({"features": {"age": 1}}, "features is {'age': 1}, expected a list of texts or None"),
        ({"features": ["age", None]}, r"features\[1\] is None, expected text"),
        ({"features": np.array([1.0])}, r"features\[0\] is 1.0, expected text"),
        ({"columns": ["age"]}, r"columns is \['age'\], expected a mapping of names to ColumnOptions"),
        ({"columns": {3: ColumnOptions()}}, "columns has the key 3, expected text"),
        ({"columns": {"a": None}}, r"columns\['a'\] is None, expected ColumnOptions"),
        ({"columns": {"a": {"impute": "mean"}}}, r"columns\['a'\] is {'impute': 'mean'}, expected ColumnOptions"),
        ({"crosses": {"c": ["a", "b"]}}, r"crosses\['c'\] is \['a', 'b'\], expected CrossOptions"),
        ({"groups": ["age"]}, r"groups is \['age'\], expected a mapping of names to a list of texts or 'numeric'"),
        ({"groups": {"dense": 3}}, r"groups\['dense'\] is 3, expected a list of texts or 'numeric'"),
        ({"groups": {"dense": [3]}}, r"groups\['dense'\]\[0\] is 3, expected text"),
        ({"part": 0.9}, "part is 0.9, expected a list of numbers or None"),
        ({"part": [0, "1"]}, r"part\[1\] is '1', expected a number"),
        ({"delimiter": 3}, "delimiter is 3, expected text or None"),
        ({"column_names": "a"}, r"column_names is 'a', expected a list of texts or None, such as \['a'\]"),
        ({"na_values": [3]}, r"na_values\[0\] is 3, expected text"),
        ({"encoding": b"utf-8"}, "encoding is b'utf-8', expected text or None"),
    ],
)
def test_an_argument_of_another_kind_is_an_error_of_type(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(ArgumentTypeError, match=f"^{fault}"):
        Csv(**{"path": "a.csv", **keys})


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"path": ""}, "path is '', expected a file, a folder, a glob or a list of these"),
        ({"path": []}, r"path is \(\), expected a file"),
        ({"path": ["a.csv", ""]}, r"path is \('a.csv', ''\), expected a file"),
        ({"label": ""}, "label names '', expected the name of a column"),
        ({"weight": ""}, "weight names '', expected"),
        ({"key_columns": [""]}, "key_columns names '', expected"),
        ({"features": []}, "features is empty, expected at least one column; leave it out for all"),
        ({"features": ["a", ""]}, "features names '', expected"),
        ({"columns": {"": ColumnOptions()}}, "columns names '', expected"),
        ({"groups": {"": ["a"]}}, "groups names '', expected"),
        ({"groups": {"g": ["a", ""]}}, r"groups\['g'\] names '', expected"),
        ({"groups": {"dense": "age"}}, r"groups\['dense'\] is 'age', expected 'numeric' or a list of texts, such as"),
        ({"label": "y", "weight": "y"}, "column 'y' is named by label and weight: name it once"),
        ({"features": ["a", "a"]}, "column 'a' is named by features and features: name it once"),
        ({"key_columns": ["a"], "features": ["a"]}, "column 'a' is named by key_columns and features: name it once"),
        ({"part": [0.5, 0.5]}, r"part is \[0.5, 0.5\], expected two ascending numbers"),
        ({"part": [math.nan, 1]}, r"part is \[nan, 1\], expected two ascending numbers"),
        ({"delimiter": ";;"}, "the delimiter is ';;': expected one ASCII character"),
        ({"column_names": []}, r"column_names is \[\]: expected at least one name, each once"),
        ({"column_names": ["a", "a"]}, r"column_names is \['a', 'a'\]: expected at least one name, each once"),
        ({"encoding": "utf-16"}, "the encoding is 'utf-16': expected utf-8"),
        ({"encoding": "nowhere"}, "the encoding is 'nowhere': expected utf-8"),
    ],
)
def test_a_value_that_says_nothing_sensible_is_refused_before_a_file_is_read(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=f"^{fault}") as caught:
        Csv(**{"path": "a.csv", **keys})
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"num_features": "3"}, "num_features is '3', expected a whole number or None"),
        ({"num_features": 2.5}, "num_features is 2.5, expected a whole number or None"),
        ({"num_features": 0}, "num_features is 0: expected a whole number from 1 to 999,999,999"),
        ({"num_features": 10**12}, "num_features is 1000000000000: expected a whole number from 1 to 999,999,999"),
        ({"zero_based": 1}, "zero_based is 1, expected true or false or None"),
    ],
)
def test_options_of_libsvm_are_numbers_and_truths(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError, match=f"^{fault}"):
        LibSvm("a.svm", **keys)


def test_all_arguments_of_another_kind_come_together() -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        Csv(3, label=3, part=3)  # type: ignore[arg-type]
    assert [fault.split()[0] for fault in caught.value.faults] == ["path", "label", "part"]


@pytest.mark.parametrize(
    ("header", "hint"),
    [
        ("age;y", "the first row is one cell, 'age;y': set delimiter to ';'"),
        ("age\ty", r"the first row is one cell, 'age\\ty': set delimiter to '\\t'"),
        ("Report", "the first row is one cell, 'Report': it must name all columns; remove the lines above it"),
    ],
)
def test_a_first_row_of_one_cell_gets_a_hint(tmp_path: Path, header: str, hint: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n1\n")
    with pytest.raises(InputError, match=f"a.csv has no column 'y'; its columns are .*\n{hint}$"):
        Csv(path, label="y").read().learn("error", "the input")


def test_other_columns_that_lack_one_get_none(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,job\n1,2\n")
    with pytest.raises(InputError, match=r"a\.csv has no column 'y'; its columns are 'age', 'job'$"):
        Csv(path, label="y").read().learn("error", "the input")


def wide_csv(folder: Path, num_columns: int) -> str:
    names = [f"c{i}" for i in range(num_columns)]
    (folder / "wide.csv").write_text("\n".join([",".join(names), *[",".join(["1"] * num_columns)] * 2]) + "\n")
    return str(folder / "wide.csv")


def wide_parquet(folder: Path, num_columns: int) -> str:
    pq.write_table(pa.table({f"c{i}": [1, 1] for i in range(num_columns)}), folder / "wide.parquet")
    return str(folder / "wide.parquet")


def wide_arrow(folder: Path, num_columns: int) -> str:
    feather.write_feather(pa.table({f"c{i}": [1, 1] for i in range(num_columns)}), folder / "wide.feather")
    return str(folder / "wide.feather")


def wide_json(folder: Path, num_columns: int) -> str:
    (folder / "wide.jsonl").write_text(json.dumps({f"c{i}": 1 for i in range(num_columns)}) + "\n")
    return str(folder / "wide.jsonl")


@pytest.mark.parametrize(
    ("write", "kind"),
    [(wide_csv, Csv), (wide_parquet, ParquetInput), (wide_arrow, ArrowInput), (wide_json, JsonLinesInput)],
)
def test_a_file_with_more_columns_than_allowed_is_refused_before_its_records_are_read(
    tmp_path: Path, write: Callable[[Path, int], str], kind: type[TabularFiles]
) -> None:
    path = write(tmp_path, 6)
    with pytest.raises(InputError, match=r"wide\.\w+: expected at most 5 columns, got 6; .* set max_columns: 6$"):
        kind(path=path, label="c0", max_columns=5).read().learn("error", "train")
    assert kind(path=path, label="c0", max_columns=6).read().learn("error", "train").num_records


def test_by_default_ten_thousand_columns_are_allowed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected at most 10,000 columns, got 10,001"):
        Csv(path=wide_csv(tmp_path, 10_001), label="c0").read().learn("error", "train")


def test_types_of_text_are_looked_for_once_in_each_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    look = OpenDelimited.types

    def types(records: OpenDelimited, names: Sequence[str]) -> dict[str, str]:
        asked.append(tuple(names))
        return look(records, names)

    monkeypatch.setattr(OpenDelimited, "types", types)
    path = wide_csv(tmp_path, 3)
    given = Csv(path=path, label="c0").read()
    schema = InputSchema((), preprocessing=given.learn("error", "train").scanned.preprocessing)
    assert given.known_columns(schema, needs_labels=True) == ("c0", "c1", "c2")
    given.open(schema, "error", "eval", needs_labels=True)
    assert asked == [("c0", "c1", "c2")] * 2


def test_a_small_parquet_file_of_very_many_records_is_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "constant.parquet"
    pq.write_table(pa.table({"x": np.zeros(10**5), "y": np.zeros(10**5, np.int64)}), path, compression="zstd")
    size, given = path.stat().st_size, ParquetInput(path=path, label="y")
    ratio = -(-1_600_000 // size)
    assert ratio > 1000
    assert given.read().learn("error", "train").num_records == 10**5  # 1.6 MB are no matter
    monkeypatch.setattr(parquet, "SMALL_BYTES", 10**6)
    found = f"{size:,} bytes hold 100,000 records, 1,600,000 bytes of values: .* 1,000 times .*, got {ratio:,} times"
    with pytest.raises(InputError, match=rf"constant\.parquet: its {found}; .*set max_compression_ratio: {ratio}$"):
        given.read().learn("error", "train")
    assert replace(given, max_compression_ratio=ratio).read().learn("error", "train").num_records == 10**5
    assert replace(given, label=None, features=["x"]).read().learn("error", "train").num_records == 10**5
