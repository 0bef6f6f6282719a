"""Tabular files as an input: learned, read again in order, or refused."""

from __future__ import annotations

import os
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.data import record_dataset
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.record_formats import Csv, JsonLinesInput, ParquetInput
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.tabular_files.scan import Scan

CENSUS = """\
id,age,work,hours,income
1,20,Private,40,<=50K
2,30,Gov,,>50K
3,40,Private,20,>50K
4,50,Self,30,<=50K
"""
COLUMNS = {"age": ColumnOptions(normalize="min_max"), "hours": ColumnOptions(impute="mean", indicator=True)}


def write(folder: Path, text: str, name: str = "t.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def opened(path: Any, trained: RecordDataset | None = None, policy: Any = "error", **keys: Any) -> RecordDataset:
    batching = {name: keys.pop(name) for name in ("batch_size", "shuffle", "seed", "epochs") if name in keys}
    enforcement = Enforcement(None if trained is None else trained.schema(), "the input")
    data = Csv(**{"path": path, "label": "income", **keys})
    found = open_input(partial(open_dataset, data, **batching), non_finite=policy, enforcement=enforcement)
    assert isinstance(found, RecordDataset)
    return found


def census(folder: Path, **keys: Any) -> RecordDataset:
    return opened(write(folder, CENSUS), columns=COLUMNS, key_columns=["id"], **keys)


def rows(data: RecordDataset, start: int = 0, stop: int | None = None) -> tuple[Any, Any]:
    features, labels = data.read(0, start, data.num_records if stop is None else stop)
    shown = {name: array.astype(float).round(3).tolist() for name, array in features.items()}  # type: ignore[union-attr]
    return shown, None if labels is None else labels.tolist()  # type: ignore[union-attr]


def test_each_column_is_a_feature_as_it_was_learned(tmp_path: Path) -> None:
    data = census(tmp_path)
    features, labels = rows(data)
    assert features == {
        "age": [0, 0.333, 0.667, 1],
        "work": [0, 1, 0, 2],
        "hours": [40, 30, 20, 30],
        "hours_is_missing": [0, 1, 0, 0],
    }
    assert labels == [0, 1, 1, 0]
    assert {spec.name: (spec.dtype, spec.num_ids) for spec in data.schema().features} == {
        "age": ("float32", 0),
        "work": ("int64", 4),
        "hours": ("float32", 0),
        "hours_is_missing": ("float32", 0),
    }
    assert data.distinct_labels().tolist() == [0, 1]  # type: ignore[union-attr]


def test_a_further_input_is_read_as_the_training_input_was(tmp_path: Path) -> None:
    unused: list[str] = []
    path = write(tmp_path, "more,income,hours,age,work\nx,>50K,,60,Gov\ny,<=50K,10,20,Army\n", "u.csv")
    schema = census(tmp_path).schema()
    enforcement = Enforcement(schema, "the eval input", on_unused=unused.extend)
    data = open_input(partial(open_dataset, Csv(path=path)), enforcement=enforcement)
    assert isinstance(data, RecordDataset)
    assert rows(data) == (
        {"age": [1.333, 0], "work": [1, 3], "hours": [30, 10], "hours_is_missing": [1, 0]},
        [1, 0],
    )
    assert unused == ["more"]
    assert data.schema() == schema


def test_labels_may_have_another_name_unless_the_name_of_training_is_there(tmp_path: Path) -> None:
    trained = census(tmp_path)
    renamed = write(tmp_path, CENSUS.replace("income", "pay"), "u.csv")
    assert rows(opened(renamed, trained, label="pay"))[1] == [0, 1, 1, 0]
    with pytest.raises(InputError, match=r"the input: the label is 'work', expected 'income' as in training"):
        opened(write(tmp_path, CENSUS), trained, label="work")


def test_a_group_is_one_matrix_and_a_weight_a_feature(tmp_path: Path) -> None:
    data = opened(
        write(tmp_path, CENSUS.replace(",,", ",5,")),
        groups={"dense": "numeric"},
        weight="hours",
        features=["age", "work"],
    )
    features, _ = rows(data)
    assert features == {"dense": [[20], [30], [40], [50]], "work": [0, 1, 0, 2], "hours": [40, 5, 20, 30]}


def test_missing_values_are_refused_left_out_or_kept_with_their_places(tmp_path: Path) -> None:
    path = write(tmp_path, CENSUS)
    with pytest.raises(
        InputError, match=r"column 'hours' has 1 cell that is missing, .* in row 3 \(the header is row 1"
    ):
        opened(path)
    dropped = opened(path, policy="drop")
    assert rows(dropped)[0]["id"] == [1, 3, 4]
    assert (dropped.num_records, str(dropped.non_finite)) == (
        3,
        "1 row that has a missing, NaN or infinite cell left out",
    )
    kept = opened(path, policy="keep")
    assert np.isnan(rows(kept)[0]["hours"][1])
    assert kept.first_non_finite_cell(0, 0, 4).startswith("column 'hours', row 3 of ")
    assert kept.first_non_finite_cell(0, 2, 4) == ""


def test_a_record_says_where_it_stands_in_any_order_and_without_those_that_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, CENSUS, "a.csv")
    write(tmp_path, CENSUS.replace(",,", ",5,"), "b.csv")
    shuffled = opened(str(tmp_path), policy="drop", shuffle=True, seed=1)
    found = [shuffled.place(0, position) for position in range(shuffled.num_records)]
    ids = [int(shuffled.read(0, position, position + 1)[0]["id"][0]) for position in range(shuffled.num_records)]
    files = [name for name in "ab" for id in (1, 2, 3, 4) if (name, id) != ("a", 2)]
    assert len(set(found)) == len(files) == 7
    for place, id in zip(found, ids, strict=True):
        assert place.startswith(f"row {id + 1} of {tmp_path}/")
        assert place.endswith(".csv (the header is row 1; empty lines do not count)")
    assert sorted(place[len(f"row 1 of {tmp_path}/")] for place in found) == files


def test_a_value_that_was_not_there_in_training_is_named_with_its_row(tmp_path: Path) -> None:
    trained = census(tmp_path)
    path = write(tmp_path, CENSUS.replace("20,>50K", "20,rich"), "u.csv")
    with pytest.raises(InputError, match=r"u\.csv: column 'income', row 4 .*: 'rich' is not a class, expected '<=50K'"):
        opened(path, trained).read(0, 0, 4)
    # rows that are left out count where the files count
    path = write(tmp_path, CENSUS.replace("20,>50K", "20,rich").replace("1,20,", "1,,"), "v.csv")
    with pytest.raises(InputError, match=r"v\.csv: column 'income', row 4 "):
        opened(path, trained, policy="drop").read(0, 0, 3)


def test_what_cannot_be_learned_from_is_named_with_its_row(tmp_path: Path) -> None:
    path = write(tmp_path, "a,income\n1,x\n,x\n-3,y\n")
    with pytest.raises(InputError, match=r"t\.csv: column 'a', row 4 \(the header is row 1"):
        opened(path, columns={"a": ColumnOptions(normalize="log1p")}, policy="drop")


def test_options_that_do_not_go_with_the_columns_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"options for 'aeg', .*did you mean 'age'"):
        opened(write(tmp_path, CENSUS), columns={"aeg": ColumnOptions()})
    with pytest.raises(InputError, match="has no column 'wage'"):
        opened(write(tmp_path, CENSUS), label="wage")


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    data = census(tmp_path)
    path = tmp_path / "t.csv"
    path.write_text(CENSUS.replace("Self", "Army"))
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match=r"t\.csv has changed"):
        data.read(0, 0, 1)


def test_several_files_are_one_input_and_its_errors_name_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    write(folder, "a,income\n1,0\n2,1\n", "1.csv")
    write(folder, "income,a\n1,3\n0,\n", "2.csv")
    assert rows(opened(str(folder), policy="drop"))[0] == {"a": [1, 2, 3]}
    with pytest.raises(InputError, match=r"the first in row 3 of .*/2\.csv \(the header is row 1"):
        opened([str(folder / "1.csv"), str(folder / "2.csv")])


def test_the_digest_is_of_the_files_and_what_was_learned(tmp_path: Path) -> None:
    first = census(tmp_path)
    assert census(tmp_path).digest() != first.digest()  # it was written anew
    assert (
        opened(str(tmp_path / "t.csv"), policy="keep").digest()
        != opened(str(tmp_path / "t.csv"), policy="keep", columns={"age": ColumnOptions(normalize="standard")}).digest()
    )


@given(st.data(), st.integers(1, 40), st.none() | st.integers(0, 9), st.integers(1, 60), st.integers(0, 2))
def test_each_record_once_an_epoch_whatever_chunks_and_windows_are(
    tmp_path_factory: Any, draw: Any, num_records: int, seed: int | None, chunk_bytes: int, epoch: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_dataset, "WINDOW_BYTES", draw.draw(st.sampled_from([1, 20, 10**6])))
        patch.setitem(Scan.__init__.__kwdefaults__, "chunk_bytes", chunk_bytes)
        text = "a,income\n" + "".join(f"{i},{i * 10}\n" for i in range(num_records))
        path = write(tmp_path_factory.mktemp("t"), text)
        data = opened(path, batch_size=1, shuffle=seed is not None, seed=seed or 0)
        cuts = sorted(draw.draw(st.sets(st.integers(0, num_records))) | {0, num_records})
        parts = [data.read(epoch, start, stop) for start, stop in draw.draw(st.permutations(list(pairwise(cuts))))]
    seen = np.concatenate([features["a"] for features, _ in parts])  # type: ignore[call-overload, index]
    labels = np.concatenate([part for _, part in parts])  # type: ignore[misc]
    assert sorted(seen.tolist()) == list(range(num_records))
    np.testing.assert_array_equal(labels, seen * 10)


def test_the_shuffled_records_are_pinned_whole_and_from_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a checkpoint holds a position in this order: it must never change
    monkeypatch.setattr(record_dataset, "WINDOW_BYTES", 100)  # 5 records of 20 bytes: two row groups
    numbers = [float(i) for i in range(10)]
    columns = {"x": numbers, "y": [-i for i in numbers], "work": list("abcabcabca"), "n": numbers, "income": numbers}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=3)
    source = ParquetInput(path=str(tmp_path / "t.parquet"), label="income", groups={"g": ["x", "y"]})
    data = open_input(partial(open_dataset, source, batch_size=4, shuffle=True, seed=3))
    assert isinstance(data, RecordDataset)
    for start, stop in [(0, 10), (2, 9), (5, 6)]:
        features, labels = data.read(1, start, stop)
        expected = np.array([1, 2, 0, 4, 5, 3, 6, 8, 7, 9][start:stop], np.float32)
        np.testing.assert_array_equal(labels, expected)
        np.testing.assert_array_equal(features["n"], expected)
        np.testing.assert_array_equal(features["g"], np.stack([expected, -expected], axis=1))
        np.testing.assert_array_equal(features["work"], expected % 3)


def test_a_label_beyond_the_classes_is_seen_before_anything_starts(tmp_path: Path) -> None:
    data = opened(write(tmp_path, "a,income\n1,0\n2,7\n3,7\n"))
    assert data.distinct_labels().tolist() == [0, 7]  # type: ignore[union-attr]
    words = opened(write(tmp_path, CENSUS), policy="keep", label=LabelOptions("work", ["Self", "Gov", "Private"]))
    assert rows(words)[1] == [2, 1, 2, 0]


def test_what_is_read_is_read_only(tmp_path: Path) -> None:
    features, labels = census(tmp_path).read(0, 0, 2)
    for array in (*features.values(), labels):  # type: ignore[union-attr]
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1  # type: ignore[index]


def test_an_infinite_number_is_refused_wherever_it_is_and_so_is_one_that_becomes_infinite(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"column 'a' has 1 cell that is .* in row 3 "):
        opened(write(tmp_path, "a,income\n1,0\n1e300,1\n"))
    pairs = pa.array([[1.0, 2.0], [np.inf, 1.0]], pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"a": pairs, "income": [0, 1]}), tmp_path / "t.parquet")
    read = partial(open_dataset, ParquetInput(path=str(tmp_path / "t.parquet"), label="income"))
    with pytest.raises(InputError, match=r"column 'a' has 1 cell that is .* in row 1 "):
        open_input(read, non_finite="error")


def test_labels_of_rows_that_are_left_out_do_not_count(tmp_path: Path) -> None:
    data = opened(write(tmp_path, "a,income\n1,0\n,-1\n3,1\n"), policy="drop")
    assert data.distinct_labels().tolist() == [0, 1]  # type: ignore[union-attr]
    assert data.place_of_label(1, "the input").startswith("row 4 of ")


def test_strings_that_no_value_can_be_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,income\n00501,True,0\n10001,False,1\n")
    for column, words in (("a", ["00501", "10001"]), ("b", ["True", "False"])):
        with pytest.raises(
            InputError,
            match=f"column '{column}' .*: vocabulary has '{words[0]}', which is not a value of such a column",
        ):
            opened(path, columns={column: ColumnOptions(vocabulary=words)})
    as_text = ColumnOptions(vocabulary=["00501", "10001"], type="string")
    assert rows(opened(path, columns={"a": as_text}))[0]["a"] == [0, 1]


def test_the_index_of_pandas_is_no_feature(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1.0, 2.0, 3.0], "income": [0, 1, 0]}, [5, 9, 7]).iloc[[2, 0]].to_parquet(tmp_path / "t.parquet")
    assert "__index_level_0__" in pq.read_schema(tmp_path / "t.parquet").names
    data = open_input(partial(open_dataset, ParquetInput(path=str(tmp_path / "t.parquet"), label="income")))
    assert isinstance(data, RecordDataset)
    assert rows(data) == ({"a": [3, 1]}, [0, 0])


def test_the_type_of_a_column_of_nulls_can_be_said(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    pq.write_table(pa.table({"w": pa.nulls(2), "income": [0, 1]}), folder / "1.parquet")
    pq.write_table(pa.table({"w": ["x", "y"], "income": [0, 1]}), folder / "2.parquet")
    keys = {"columns": {"w": ColumnOptions(type="string")}, "label": "income"}
    read = partial(open_dataset, ParquetInput(path=str(folder), **keys))
    data = open_input(read, non_finite="keep")
    assert isinstance(data, RecordDataset)
    assert rows(data)[0]["w"] == [2, 2, 0, 1]


def test_strings_of_json_are_strings_whatever_they_look_like(tmp_path: Path) -> None:
    lines = '{"zip": "00501", "income": 0}\n{"zip": "10001", "income": 1}\n'
    path = write(tmp_path, lines, "t.jsonl")
    data = open_input(partial(open_dataset, JsonLinesInput(path=path, label="income")))
    assert isinstance(data, RecordDataset)
    assert {spec.name: spec.num_ids for spec in data.schema().features} == {"zip": 3}


def test_a_further_file_may_name_its_columns_though_the_training_file_does_not(tmp_path: Path) -> None:
    trained = opened(write(tmp_path, "1,2,0\n3,4,1\n"), column_names=["a", "b", "income"])
    named = opened(write(tmp_path, "b,income,a\n2,0,1\n", "u.csv"), trained)
    assert rows(named) == ({"a": [1], "b": [2]}, [0])
    assert rows(opened(write(tmp_path, "1,2,0\n", "v.csv"), trained)) == ({"a": [1], "b": [2]}, [0])


@pytest.mark.parametrize("first_number", [0.0, float("nan")])
def test_a_shuffled_epoch_decodes_each_large_row_group_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_number: float
) -> None:
    monkeypatch.setattr("psflow.ps_runtime.tabular_files.parquet.MAX_ROW_GROUP_BYTES", 400)
    monkeypatch.setattr("psflow.ps_runtime.tabular_files.parquet.SLICE_BYTES", 80)
    monkeypatch.setattr(record_dataset, "WINDOW_BYTES", 100)  # 25 records: slices of 10 from several row groups
    numbers = [first_number] * 15 + [float(i) for i in range(15, 360)]
    for name in ("a", "b"):
        pq.write_table(pa.table({"x": numbers}), tmp_path / f"{name}.parquet", row_group_size=90)
    keys = {"batch_size": 10, "shuffle": True, "seed": 3}
    data = open_input(partial(open_dataset, ParquetInput(path=str(tmp_path)), **keys), non_finite="drop")
    assert isinstance(data, RecordDataset)
    decoded: list[int] = []
    iter_batches = pq.ParquetFile.iter_batches

    def counted(self: pq.ParquetFile, batch_size: int, row_groups: list[int], **options: Any) -> Any:
        decoded.extend(row_groups)
        return iter_batches(self, batch_size, row_groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    for epoch in (0, 1):
        decoded.clear()
        read = [data.read(epoch, start, min(start + 10, data.num_records)) for start in range(0, data.num_records, 10)]
        seen = np.concatenate([features["x"] for features, _ in read])  # type: ignore[call-overload, index]
        assert sorted(seen.tolist()) == sorted(2 * [number for number in numbers if number == number])
        assert sorted(decoded) == [0, 0, 1, 1, 2, 2, 3, 3]


LABELS_IN = {"first": ["income", "a", "b"], "in the middle": ["a", "income", "b"], "last": ["a", "b", "income"]}


@pytest.mark.parametrize("names", LABELS_IN.values(), ids=LABELS_IN)
def test_files_without_header_and_labels_have_the_other_columns(tmp_path: Path, names: list[str]) -> None:
    cells = {"a": "1", "b": "2", "income": "0"}
    text = "".join(",".join(cells[name] for name in names) + "\n" for _ in range(3))
    schema = opened(write(tmp_path, text), column_names=names).schema()

    def predicted(text: str, **keys: Any) -> Any:
        given = Csv(path=write(tmp_path, text, "new.csv"), **keys).read()
        return rows(given.open(schema, "error", "new.csv", needs_labels=False))

    assert predicted("\n3,4\n5,6\n") == ({"a": [3, 5], "b": [4, 6]}, None)
    assert predicted(text) == ({"a": [1, 1, 1], "b": [2, 2, 2]}, None)
    assert predicted("b,a\n4,3\n") == ({"a": [3], "b": [4]}, None)
    for few in ("3\n", "3,4,5,6\n"):
        with pytest.raises(InputError, match=rf"new.csv, row 1 .*: expected 3 cells, got {few.count(',') + 1}"):
            predicted(few)
    with pytest.raises(InputError, match=r"new.csv, row 2 .*: expected 2 cells, got 3"):
        predicted("3,4\n3,4,5\n")
    with pytest.raises(InputError, match=r"new.csv, row 1 .*: expected 3 cells, got 2"):  # what is said holds
        predicted("3,4\n", column_names=names)
    with pytest.raises(InputError, match=r"new.csv, row 1 .*: expected 3 cells, got 2"):  # an evaluation needs labels
        Csv(path=write(tmp_path, "3,4\n", "new.csv")).read().open(schema, "error", "new.csv", needs_labels=True)
