"""Kept scans: an input is opened without reading its files again, or the reason why not is reported."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.data import record_input
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.kept_scan import EarlierScan, FlowScan, KeptScan
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.record_formats import Csv, JsonLinesInput, ParquetInput, TabularFiles
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import InputSchema

TEXT = "id,age,work,pay\n1,20,Private,7.5\n2,,Gov,8\n3,40,Private,9\n"
JSON = '{"age": 20, "pay": 7.5}\n{"age": null, "pay": 8}\n{"age": 40, "pay": 9.5}\n'
AGE = {"age": ColumnOptions(impute="mean", normalize="standard")}


def opened(
    data: TabularFiles, schema: InputSchema | None = None, kept: KeptScan | None = None, policy: Any = "error"
) -> RecordDataset:
    enforcement = Enforcement(schema, "the input")
    found = open_input(
        lambda: data.read().batch(2).shuffle(seed=3), enforcement=enforcement, non_finite=policy, kept=kept
    )
    assert isinstance(found, RecordDataset)
    return found


def all_of(data: RecordDataset) -> list[Any]:
    features, labels = data.read(1, 0, data.num_records)
    assert isinstance(features, dict)
    distinct = data.distinct_labels()
    return [
        {name: (array.dtype, array.shape, array.tobytes()) for name, array in features.items()},
        None if labels is None else (labels.dtype, labels.tobytes()),  # type: ignore[union-attr]
        None if distinct is None else distinct.tolist(),  # type: ignore[union-attr]
        data.scanned.scan.labels.tolist(),
        data.scanned.scan.label_records.tolist(),
        data.schema(),
        data.digest(),
        data.non_finite,
        data.source,
        data.unused,
        (data.batch_size, data.num_epochs, data.shuffle_seed),
    ]


def csv(folder: Path, **keys: Any) -> Csv:
    (folder / "t.csv").write_text(TEXT)
    return Csv(**{"path": str(folder), "label": "work", "columns": AGE, "key_columns": ["id"], **keys})


def parquet(folder: Path) -> ParquetInput:
    pq.write_table(pa.table({"age": [1.0, None, 3.0], "pay": [1, 2, 3]}), folder / "t.parquet")
    return ParquetInput(path=[str(folder / "t.parquet")], columns=AGE, groups={"all": "numeric"})


def json_lines(folder: Path) -> JsonLinesInput:
    (folder / "t.jsonl").write_text(JSON)
    return JsonLinesInput(path=str(folder), label=LabelOptions("pay"))


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is scanned from now on."""
    found: list[str] = []
    scan = record_input.scan_input

    def counted(*given: Any, **options: Any) -> Any:
        found.append(given[3])
        return scan(*given, **options)

    monkeypatch.setattr(record_input, "scan_input", counted)
    return found


def content_of(data: RecordDataset) -> Callable[[], bytes]:
    return data.scanned.to_bytes


@pytest.mark.parametrize(
    ("make", "policy"),
    [
        (csv, "error"),
        (lambda folder: csv(folder, columns={}), "drop"),
        (lambda folder: csv(folder, label="pay", weight="id", key_columns=[], columns={}), "keep"),
        (lambda folder: csv(folder, label=None, column_names=["a", "b", "c", "d"]), "error"),
        (lambda folder: csv(folder, label=None, part=[0.3, 0.9]), "error"),
        (parquet, "error"),
        (json_lines, "drop"),
    ],
)
@pytest.mark.parametrize("kind", [EarlierScan, FlowScan])
def test_what_is_kept_is_the_same_input(
    make: Callable[[Path], TabularFiles], policy: Any, kind: type[KeptScan], tmp_path: Path, scans: list[str]
) -> None:
    data = make(tmp_path)
    if isinstance(data, Csv) and data.column_names:
        (tmp_path / "t.csv").write_text("1,2,x,4\n2,3,y,5\n")
        data = Csv(path=data.path, column_names=data.column_names)
    trained = opened(data, policy=policy)
    schema = trained.schema()
    further = opened(data, schema, policy=policy)
    for schema_of, first in ((None, trained), (schema, further)):
        if kind is FlowScan and schema_of is None:
            continue  # roles know the model
        again = opened(data, schema_of, kind(content_of(first), "it"), policy)
        assert all_of(again) == all_of(first)
    roles = opened(data, schema, FlowScan(content_of(trained), "it"), policy)
    assert all_of(roles) == all_of(trained)
    assert len(scans) == 2


def test_a_further_input_keeps_the_name_of_its_own_label(tmp_path: Path, scans: list[str]) -> None:
    schema = opened(csv(tmp_path)).schema()
    (tmp_path / "other").mkdir()
    data = csv(tmp_path / "other", label="job")
    (tmp_path / "other" / "t.csv").write_text(TEXT.replace("work", "job"))
    first = opened(data, schema)
    assert all_of(opened(data, schema, EarlierScan(content_of(first), "it"))) == all_of(first)
    assert len(scans) == 2


def rewrite(path: Path, text: str) -> None:
    """Write a file again, so that its stamp differs however coarse the clock of the file system is."""
    stamp = path.stat().st_mtime_ns + 10**9
    path.write_text(text)
    os.utime(path, ns=(stamp, stamp))


CHANGES: dict[str, Callable[[Path], TabularFiles]] = {
    "a file is written again": lambda folder: rewrite(folder / "t.csv", TEXT) or csv_there(folder),  # type: ignore[func-returns-value]
    "a file is new": lambda folder: (folder / "u.csv").write_text(TEXT) and csv_there(folder),  # type: ignore[return-value]
    "a file is gone, another there": lambda folder: (folder / "t.csv").rename(folder / "u.csv") and csv_there(folder),  # type: ignore[return-value]
    "another column": lambda folder: csv_there(folder, columns={}, features=["pay"]),
    "another label": lambda folder: csv_there(folder, label=LabelOptions("work", ["Gov", "Private"])),
    "another key column": lambda folder: csv_there(folder, key_columns=[]),
    "a group": lambda folder: csv_there(folder, groups={"all": "numeric"}),
    "other text": lambda folder: csv_there(folder, na_values=["-"]),
    "another vocabulary": lambda folder: rewrite(folder / "words.txt", "9\n7.5\n8\n") or csv_there(folder),  # type: ignore[func-returns-value]
}


def csv_there(folder: Path, **keys: Any) -> Csv:
    columns = {**AGE, "pay": ColumnOptions(type="string", vocabulary=str(folder / "words.txt"))}
    return Csv(**{"path": str(folder), "label": "work", "columns": columns, "key_columns": ["id"], **keys})


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_is_scanned_again(change: str, tmp_path: Path, scans: list[str]) -> None:
    csv(tmp_path)
    (tmp_path / "words.txt").write_text("7.5\n8\n9\n")
    first = opened(csv_there(tmp_path))
    kept = EarlierScan(content_of(first), "it")
    assert all_of(opened(csv_there(tmp_path), None, kept)) == all_of(first)
    assert len(scans) == 1
    data = CHANGES[change](tmp_path)
    assert all_of(opened(data, None, kept)) == all_of(opened(data))
    assert len(scans) == 3


def test_another_policy_or_model_is_scanned_again(tmp_path: Path, scans: list[str]) -> None:
    data, other = csv(tmp_path), csv(tmp_path, columns={"age": ColumnOptions(impute=0)})
    first, schema = opened(data), opened(other).schema()
    kept = EarlierScan(content_of(first), "it")
    for policy, model in (("drop", None), ("error", schema)):
        assert all_of(opened(data, model, kept, policy)) == all_of(opened(data, model, policy=policy))
    assert len(scans) == 6


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: content[:40], lambda _: b""])
def test_damage_is_scanned_again_by_the_flow_and_refused_by_its_roles(
    damage: Callable[[bytes], bytes], tmp_path: Path, scans: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    data = csv(tmp_path)
    first = opened(data)
    damaged = damage(first.scanned.to_bytes())
    assert all_of(opened(data, None, EarlierScan(lambda: damaged, "inputs/train"))) == all_of(first)
    assert "inputs/train is damaged: its checksum differs; the input is scanned again" in caplog.text
    assert len(scans) == 2
    with pytest.raises(InputError, match="inputs/train is damaged: its checksum differs; run the command"):
        opened(data, first.schema(), FlowScan(lambda: damaged, "inputs/train"))


def test_nothing_is_kept_at_first(tmp_path: Path, scans: list[str]) -> None:
    data = csv(tmp_path)
    first = opened(data, None, EarlierScan(lambda: None, "inputs/train"))
    assert len(scans) == 1
    with pytest.raises(InputError, match="inputs/train is missing, although the flow wrote it; run the command again"):
        opened(data, first.schema(), FlowScan(lambda: None, "inputs/train"))


def test_roles_refuse_what_differs_from_the_flow(tmp_path: Path, scans: list[str]) -> None:
    data = csv(tmp_path)
    first = opened(data)
    schema, kept = first.schema(), FlowScan(content_of(first), "inputs/train")
    with pytest.raises(InputError, match=r"the input is /x.csv here, but was /.* in the flow: expected an input_fn"):
        opened(csv(tmp_path, path="/x.csv"), schema, kept)
    with pytest.raises(InputError, match=r"the input is a and 1 more paths here"):
        opened(csv(tmp_path, path=["a", "b"]), schema, kept)
    described = "the input is described differently here than in the flow: its columns, label or options differ"
    other = opened(csv(tmp_path, columns={"age": ColumnOptions(impute=0)})).schema()
    for given, model, policy in (
        (csv(tmp_path, label="pay"), schema, "error"),
        (data, schema, "keep"),
        (data, other, "error"),
    ):
        with pytest.raises(InputError, match=described):
            opened(given, model, kept, policy)
    first = opened(data)
    rewrite(tmp_path / "t.csv", TEXT)
    (tmp_path / "u.csv").write_text(TEXT)  # came later: no part of the input
    with pytest.raises(InputError) as caught:
        opened(data, schema, FlowScan(content_of(first), "it"))
    assert caught.value.faults == (
        f"{tmp_path}/t.csv has changed since it was scanned: it was rewritten; run the command again",
    )


def test_roles_refuse_what_differs_whichever_of_two_it_is(tmp_path: Path) -> None:
    first = csv(tmp_path)
    second = csv(tmp_path, columns={"age": ColumnOptions(impute=0)})
    a, b = opened(first), opened(second)
    for given, scanned, model in ((first, b, b), (second, a, a), (first, a, b), (second, b, a)):
        with pytest.raises(InputError, match="the input is described differently here than in the flow"):
            opened(given, model.schema(), FlowScan(content_of(scanned), "it"))


def test_the_cells_that_are_not_finite_are_kept_with_their_places(tmp_path: Path) -> None:
    data = csv(tmp_path, columns={})
    first = opened(data, policy="drop")
    again = opened(data, None, EarlierScan(content_of(first), "it"), "drop")
    assert (again.num_records, str(again.non_finite)) == (2, "1 row that has a missing, NaN or infinite cell left out")
    assert (
        again.non_finite.first == first.non_finite.first == f"column 'age', row 3 of {tmp_path}/t.csv (the header "
        "is row 1; empty lines do not count)"
    )
    np.testing.assert_array_equal(again.read(0, 0, 2)[1], first.read(0, 0, 2)[1])
