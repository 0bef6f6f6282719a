"""Integers that float64 cannot hold: a column that has some does not widen, and a widened column refuses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files import delimited_file, json_lines
from psflow.ps_runtime.tabular_files.base import RecordFormat
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.json_lines import JsonLines
from psflow.ps_runtime.tabular_files.parquet import Parquet
from tests.ps_runtime.tabular_files.reading import index_of, table_of, types_of

LARGE = 2**53 + 1


@pytest.fixture(autouse=True)
def _few_inferred_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (delimited_file, json_lines):
        monkeypatch.setattr(module, "INFERRED_ROWS", 3)


def csv(folder: Path, ids: list[Any]) -> DelimitedText:
    (folder / "t.csv").write_text("id,n\n" + "".join(f"{i},1\n" for i in ids))
    return DelimitedText()


def lines(folder: Path, ids: list[Any]) -> JsonLines:
    (folder / "t.json").write_text("".join(json.dumps({"id": i}) + "\n" for i in ids))
    return JsonLines()


def parquet(folder: Path, ids: list[Any]) -> Parquet:
    for number, kind in enumerate((int, float)):
        pq.write_table(pa.table({"id": [i for i in ids if isinstance(i, kind)]}), folder / f"{number}.parquet")
    return Parquet()


CSV_NOTE = r" \(the header is row 1; empty lines do not count\): "


@pytest.mark.parametrize("chunk_bytes", [20, 4096])
@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (csv, rf"/t.csv, row 7{CSV_NOTE}column 'id' expects a whole number \(int64\), got '0.5'; .*; a number with a "),
        (lines, r"/t.json, row 6 \(rows are lines, from 1\): column 'id' expects .*, got 0.5; .*; a number with a "),
        (parquet, "/1.parquet: column 'id' is float64 in this file, expected int64 as in the first one; .*; a number "),
    ],
)
def test_a_fraction_beside_an_earlier_large_integer_is_refused_with_both_places(
    make: Any, fault: str, chunk_bytes: int, tmp_path: Path
) -> None:
    kind = make(tmp_path, [1, 2, 3, LARGE, 5, 0.5])
    first = rf"beside {LARGE} in row \d of .*/[t0].\w+ would make the integer lose digits"
    if make is not parquet and chunk_bytes == 4096:  # all in one chunk, which is read anew with the wider type
        first = r"column 'id' has 9007199254740992.0 beside whole numbers and fractions: it may have lost digits"
        fault = r"/t.\w+, row [54] "
    with pytest.raises(InputError, match=f"(?s){fault}.*{first}"):
        index_of(tmp_path, kind, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize("make", [csv, lines])
@pytest.mark.parametrize("large", [LARGE, -LARGE, 2**53])
def test_a_large_integer_behind_a_fraction_is_refused(make: Any, large: int, tmp_path: Path) -> None:
    kind: RecordFormat = make(tmp_path, [1, 2, 3, 0.5, 5, large])
    advice = "set columns.id.type: string if these are names, or float64 if its last digits do not count"
    with pytest.raises(InputError, match=rf"row [67] .*column 'id' has -?9007199254740992.0 beside .*; {advice}"):
        index_of(tmp_path, kind, chunk_bytes=8)
    number = type(kind)(types={"id": "float64"})
    assert table_of(tmp_path, number, chunk_bytes=8)["id"].to_pylist() == [1, 2, 3, 0.5, 5, float(large)]


@pytest.mark.parametrize(
    ("ids", "fault"),
    [
        ([[1], [2], [3], [LARGE], [0.5]], r"row [45] .*'id' (has 9007199254740992.0|expects .* beside 90)"),
        ([[1], [2], [3], None, [0.5], [-LARGE]], r"row 6 .*'id' has -9007199254740992.0 beside .*write all numbers"),
        ([[1, 2], [3, 4], [5, 6], [0.5, LARGE]], r"row 4 .*'id' has 9007199254740992.0 beside"),
        ([[0.5, LARGE]], r"'id' is lists of fractions and whole numbers beyond 2\*\*53"),
        ([[0.5], [LARGE, 1]], r"'id' is lists of fractions and whole numbers beyond 2\*\*53"),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [8, 4096])
def test_a_list_that_would_lose_digits_is_refused(ids: list[Any], fault: str, chunk_bytes: int, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"(?s){fault}"):
        index_of(tmp_path, lines(tmp_path, ids), ["id"], chunk_bytes=chunk_bytes)


def test_lists_of_large_integers_alone_stay_as_they_are(tmp_path: Path) -> None:
    ids = [[1, LARGE], None, [LARGE, 3]]
    assert table_of(tmp_path, lines(tmp_path, ids))["id"].to_pylist() == ids


@pytest.mark.parametrize("make", [csv, lines, parquet])
def test_integers_that_a_float64_holds_widen(make: Any, tmp_path: Path) -> None:
    kind = make(tmp_path, [1, None, 3, 2**53 - 1, -(2**53) + 1, 0.5] if make is lines else [1, 2, 3, 2**53 - 1, 0.5])
    index = index_of(tmp_path, kind, ["id"], chunk_bytes=8)
    assert types_of(index) == {"id": "float64"}


def test_floats_that_widen_may_be_large(tmp_path: Path) -> None:
    for number, kind in enumerate((pa.float32(), pa.float64())):
        pq.write_table(pa.table({"x": pa.array([1e30], kind)}), tmp_path / f"{number}.parquet")
    assert types_of(index_of(tmp_path, Parquet())) == {"x": "float64"}


def test_a_column_of_large_integers_alone_stays_one(tmp_path: Path) -> None:
    assert table_of(tmp_path, csv(tmp_path, [1, 2, 3, "", LARGE]))["id"].to_pylist() == [1, 2, 3, None, LARGE]
    for bound in (-(2**53), 2**53):
        assert table_of(tmp_path, csv(tmp_path, [0, bound]))["id"].to_pylist() == [0, bound]


def test_large_integers_and_fractions_among_the_first_are_strings_in_text_and_refused_in_json(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert types_of(index_of(tmp_path / "a", csv(tmp_path / "a", [LARGE, 0.5])))["id"] == "string"
    with pytest.raises(InputError, match="column 'id' is fractions and whole numbers beyond 2\\*\\*53: expected numb"):
        index_of(tmp_path / "b", lines(tmp_path / "b", [LARGE, 0.5]))
