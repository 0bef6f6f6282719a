"""A partition in this process, with a model that fails on some rows."""

from __future__ import annotations

import json
import os
import pickle
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from psflow.ps_runtime.checkpoint import owner_mark
from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.npz_arrays import Npz
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import InputError, LostDirectoryError, ModelFnError, UsageError
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema
from psflow.tasks.prediction import worker as module
from psflow.tasks.prediction.inputs import prediction_input
from psflow.tasks.prediction.options import PredictionOptions
from psflow.tasks.prediction.part_facts import all_invalid
from psflow.tasks.prediction.plan import PredictionPlan, plan_prediction
from psflow.tasks.prediction.predictor import batch_rows, predicted_batches
from psflow.tasks.prediction.rows import Block, RecordFault
from psflow.tasks.prediction.worker import predict_in_turn, predict_partition
from tests.tasks.prediction.scoring import FilledSums, Sums, info, trained

LINES = "id,a,b\nu,1,2\nv,3,4\nw,5,6\nx,7,8\n"


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    yield
    module._rows.cache_clear()


def plan(tmp_path: Path, text: str | bytes, monkeypatch: pytest.MonkeyPatch, **options: Any) -> PredictionPlan:
    """Return the plan of a prediction by `Sums` of some CSV."""
    schema = trained(tmp_path)
    (tmp_path / "in.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    how = {key: options.pop(key) for key in ("non_finite", "invalid") if key in options}
    model = module._Model(info(schema), options.pop("loaded", Sums()), 3)
    monkeypatch.setattr(module, "_model", lambda path, uri: model)
    source = prediction_input(str(tmp_path / "in.csv"), **how)
    made = plan_prediction(model.info, source, PredictionOptions(**options), str(tmp_path / "out"))
    made.begin()
    return made


def rejects(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "out/_rejects/part-00000.jsonl").read_text().splitlines()]


def test_keys_and_predictions_of_each_row_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(tmp_path, LINES, monkeypatch)
    facts = predict_partition(made.work, made.parts[0])
    assert (facts.rows, facts.rejects, facts.name) == (4, 0, "part-00000.parquet")
    table = pq.read_table(tmp_path / "out")
    assert table.column_names == ["id", "sum", "both"]
    assert table.select(["id", "sum"]).to_pydict() == {"id": list("uvwx"), "sum": [3, 7, 11, 15]}
    assert not (tmp_path / "out/_rejects").exists()


def test_a_part_is_the_same_however_often_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(tmp_path, LINES, monkeypatch, output_format="csv")
    assert predict_partition(made.work, made.parts[0]) == predict_partition(made.work, made.parts[0])


def test_a_file_that_fails_is_named_and_those_before_it_in_its_task_are_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, folder = trained(tmp_path), tmp_path / "in"
    folder.mkdir()
    for name, b in (("a", 2), ("b", 13), ("c", 2)):
        (folder / f"{name}.csv").write_text(f"id,a,b\nu,1,{b}\n")
    model = module._Model(info(schema), Sums(), 3)
    monkeypatch.setattr(module, "_model", lambda path, uri: model)
    made = plan_prediction(
        model.info, prediction_input(str(folder), Csv), PredictionOptions(output_format="csv"), str(tmp_path / "out")
    )
    made.begin()
    with pytest.raises(ModelFnError, match=r"in/b\.csv, row 2 "):
        predict_in_turn(made.work, made.parts)
    assert [part.index for part in made.left()] == [1, 2]
    (tmp_path / "out/_parts/part-00000.json").write_bytes(b"")  # as a power failure may leave it
    assert [part.index for part in made.left()] == [0, 1, 2]
    [facts] = predict_in_turn(made.work, made.parts[2:])
    assert (facts.file, facts.rows) == (str(folder / "c.csv"), 1)


@pytest.mark.parametrize(
    ("text", "words", "error"),
    [
        (LINES + "y,no,9\n", r"in\.csv, row 6 .*: column 'a' expects a number, got 'no'", InputError),
        (LINES + "y,9\nz,1,2\n", r"in\.csv, row 6 .*: expected 3 cells, got 2: 'y,9'", InputError),
        (LINES + "y,1,13\n", r"in\.csv, row 6 .*: the model raised ValueError: 13 is no number", ModelFnError),
        (
            LINES + "y,9,\nz,1,2\n",
            r"in\.csv, row 6 .*: the model predicted NaN as 'sum', 'both' from a missing, NaN or infinite cell in "
            "column 'b'; correct the row, or set on_error to reject$",
            ModelFnError,
        ),
    ],
)
def test_the_first_row_that_cannot_be_predicted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str, error: type[Exception]
) -> None:
    made = plan(tmp_path, text, monkeypatch)
    with pytest.raises(error, match=words) as caught:
        predict_partition(made.work, made.parts[0])
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert not list((tmp_path / "out").glob("part*"))
    assert made.left() == made.parts


def test_rows_that_cannot_be_predicted_are_rejected_and_the_others_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'id,a,b\nu,1,2\nbad,no,2\n"new\nline",1,13\nshort,1\nlong,1,2,3\nv,3,4\nw,,6\n'
    made = plan(tmp_path, text, monkeypatch, on_error="reject")
    facts = predict_partition(made.work, made.parts[0])
    assert (facts.rows, facts.rejects, facts.num_records) == (2, 5, 7)
    assert (facts.not_finite_rows, facts.not_finite) == (0, {})
    table = pq.read_table(tmp_path / "out")
    assert table.select(["id", "sum"]).to_pydict() == {"id": ["u", "v"], "sum": [3, 7]}
    found = {line["row"]: line for line in rejects(tmp_path)}
    assert {row: line["record"] for row, line in found.items()} == {3: 1, 4: 2, 5: 3, 6: 4, 8: 6}
    assert found[8]["cells"] == {"id": "w", "a": None, "b": 6.0}
    assert found[8]["reason"] == "the model predicted NaN as 'sum', 'both'"
    assert found[3]["text"] == "bad,no,2\n"
    assert "expects a number, got 'no'" in found[3]["reason"]
    assert found[4]["cells"] == {"id": "new\nline", "a": 1.0, "b": 13.0}
    assert found[4]["reason"] == "the model raised ValueError: 13 is no number that I like"
    assert "expected 3 cells, got 2" in found[5]["reason"]
    assert "got 4" in found[6]["reason"]
    assert {line["file"] for line in found.values()} == {str(tmp_path / "in.csv")}
    assert [one.rejects for one in made.complete()] == [5]


def test_a_partition_of_nothing_but_rejects_is_a_part_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(tmp_path, "id,a,b\nu,1,13\nv,x,2\n", monkeypatch, on_error="reject")
    facts = predict_partition(made.work, made.parts[0])
    assert (facts.rows, facts.rejects) == (0, 2)
    assert pq.read_table(tmp_path / "out").num_rows == 0


@pytest.mark.parametrize("on_error", ["stop", "reject"])
def test_missing_values_are_counted_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_error: str) -> None:
    text = "id,a,b\nu,1,2\nv,,inf\nw,,6\n"
    kept = plan(tmp_path, text, monkeypatch, on_error=on_error, loaded=FilledSums())
    facts = predict_partition(kept.work, kept.parts[0])
    assert (facts.rows, facts.not_finite_rows) == (3, 2)
    counts = {name: (count.cells, count.first_row) for name, count in facts.not_finite.items()}
    assert counts == {"column 'a'": (2, 3), "column 'b'": (1, 3)}
    refused = replace(kept.work, source=replace(kept.source, non_finite="error"))
    if on_error == "stop":
        with pytest.raises(
            InputError, match=r"row 3 .*: a missing, NaN or infinite cell in column 'a', column 'b', which"
        ):
            predict_partition(refused, kept.parts[0])
        return
    facts = predict_partition(refused, kept.parts[0])
    assert (facts.rows, facts.rejects, facts.not_finite_rows) == (1, 2, 0)
    assert [line["cells"]["id"] for line in rejects(tmp_path)] == ["v", "w"]


def test_an_input_that_changes_after_the_scan_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(tmp_path, LINES, monkeypatch)
    (tmp_path / "in.csv").write_text(LINES + "y,1,2\n")
    with pytest.raises(InputError, match=r"in\.csv has changed since it was scanned: its size was 31, now 37 bytes"):
        predict_partition(made.work, made.parts[0])
    words = r"in\.csv has changed since .*out was started: restore the original, or predict into another folder"
    with pytest.raises(InputError, match=words):
        plan(tmp_path, LINES + "y,1,2\n", monkeypatch)


def test_arrays_are_read_again_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, a=np.arange(3, dtype=np.float32), b=np.array([1, 13, 2], np.float32))
    schema = InputSchema((ArraySpec("a", "float32", ()), ArraySpec("b", "float32", ())))
    model = module._Model(info(schema), Sums(), 3)
    monkeypatch.setattr(module, "_model", lambda path, uri: model)
    options = PredictionOptions(on_error="reject")
    made = plan_prediction(model.info, prediction_input(str(path), Npz), options, str(tmp_path / "out"))
    made.begin()
    facts = predict_partition(made.work, made.parts[0])
    assert (facts.rows, facts.rejects) == (2, 1)
    assert rejects(tmp_path)[0]["cells"] == {"a": 1.0, "b": 13.0}
    module._rows.cache_clear()
    np.savez(path, a=np.arange(4, dtype=np.float32), b=np.zeros(4, np.float32))
    with pytest.raises(InputError, match=r"in\.npz has changed, or differs on this Dask worker; run the command again"):
        predict_partition(made.work, made.parts[0])


@pytest.mark.parametrize("bad", [set(), {0}, {2}, {0, 1, 2}])
def test_no_row_is_written_of_which_a_prediction_is_nan_that_was_not_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: set[int]
) -> None:
    class Classifier:
        def predict(self, context: Any, rows: Any) -> dict[str, Any]:
            logits = np.array([[-np.inf, 1], [3, 4], [5, np.inf]], np.float32)
            logits[sorted(bad), 1] = np.nan
            return {"sum": logits.argmax(axis=1).astype(np.float32), "logits": logits}

    text = "id,a,b\nu,1,2\nv,3,4\nw,5,6\n"
    options = {"predict_keys": ("sum",), "on_error": "reject", "loaded": Classifier()}
    made = plan(tmp_path, text, monkeypatch, **options)
    facts = predict_partition(made.work, made.parts[0])
    assert (facts.rows, facts.rejects) == (3 - len(bad), len(bad))
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == [id for row, id in enumerate("uvw") if row not in bad]
    assert {line["record"] for line in rejects(tmp_path)} == bad if bad else not (tmp_path / "out/_rejects").exists()
    stopping = replace(made.work, on_error="stop")
    if bad:
        with pytest.raises(ModelFnError, match=rf"row {min(bad) + 2} .*: the model predicted NaN as 'logits'; correct"):
            predict_partition(stopping, made.parts[0])


class Locating:
    def located(self, record: int) -> str:
        return f"record {record}"


def block(size: int, bad: set[int]) -> Block:
    rows = {"a": np.zeros(size, np.float32), "b": np.array([13.0 * (i in bad) for i in range(size)], np.float32)}
    import pyarrow as pa

    return Block(np.arange(100, 100 + size), rows, pa.table({}))


@pytest.mark.parametrize("bad", [set(), {0}, {7}, {3, 4}, set(range(8))])
def test_a_model_that_fails_predicts_all_rows_that_it_can_in_order(bad: set[int]) -> None:
    faults: list[RecordFault] = []
    model, rows = Sums(), Locating()
    done = list(predicted_batches(model, rows, block(8, bad), 5, faults.append))  # type: ignore[arg-type]
    assert [fault.record for fault in faults] == [100 + i for i in sorted(bad)]
    assert [int(r) for batch, _ in done for r in batch.records] == [100 + i for i in range(8) if i not in bad]
    assert bad or model.num_calls == 2


def test_no_record_is_at_fault_for_what_the_process_lacks() -> None:
    class Lacking:
        def predict(self, context: Any, rows: Any) -> Any:
            raise MemoryError("no more")

    with pytest.raises(MemoryError):
        list(predicted_batches(Lacking(), Locating(), block(8, set()), 5, lambda fault: None))  # type: ignore[arg-type]


def test_an_error_of_a_class_that_only_the_export_knows_travels() -> None:
    class Raising:
        def predict(self, context: Any, rows: Any) -> Any:
            raise type("OwnError", (Exception,), {"__module__": "_psflow_export_0.my_model"})("no such price")

    with pytest.raises(ModelFnError, match="record 100: the model raised OwnError: no such price") as raised:
        list(predicted_batches(Raising(), Locating(), block(2, set()), 5, None))  # type: ignore[arg-type]
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_wide_rows_are_predicted_fewer_at_a_time() -> None:
    wide = InputSchema((ArraySpec("x", "float32", (1024, 64)),))
    assert (batch_rows(wide), batch_rows(InputSchema((ArraySpec("x", "float32", ()),)))) == (16, 8192)


@pytest.mark.parametrize("on_error", ["stop", "reject"])
def test_arrays_that_are_not_finite_are_refused_ahead_or_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_error: Any
) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, a=np.array([1, np.nan], np.float32), b=np.zeros(2, np.float32))
    schema = InputSchema((ArraySpec("a", "float32", ()), ArraySpec("b", "float32", ())))
    model = module._Model(info(schema), Sums(), 3)
    monkeypatch.setattr(module, "_model", lambda path, uri: model)
    source = prediction_input(str(path), Npz, non_finite="error")
    options = PredictionOptions(on_error=on_error)
    if on_error == "stop":
        with pytest.raises(InputError, match=r"in\.npz: features\['a'\] has 1 cell that is missing, NaN or infinite"):
            plan_prediction(model.info, source, options, str(tmp_path / "out"))
        return
    made = plan_prediction(model.info, source, options, str(tmp_path / "out"))
    made.begin()
    facts = predict_partition(made.work, made.parts[0])
    assert (facts.rows, facts.rejects) == (1, 1)
    [line] = rejects(tmp_path)
    assert line["reason"] == "a missing, NaN or infinite cell in features['a'], which non_finite refuses"
    assert line["cells"] == {"a": "nan", "b": 0.0}


@pytest.mark.parametrize("found", ["no", "that of another prediction"])
def test_a_host_that_does_not_see_the_output_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    monkeypatch.setattr(owner_mark, "FIND_SECS", 0.0)
    made = plan(tmp_path, LINES, monkeypatch)
    work = made.work
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    words = "no _job.json"
    if found != "no":
        (tmp_path / "out").mkdir()
        record = json.loads((tmp_path / "elsewhere" / "_job.json").read_text())
        (tmp_path / "out" / "_job.json").write_text(json.dumps(record | {"began": "earlier"}))
        words = "the _job.json of another prediction"
    host = socket.gethostname()
    with pytest.raises(LostDirectoryError) as told:
        predict_partition(work, made.parts[0])
    assert str(told.value).startswith(
        f"{tmp_path}/out: process {os.getpid()} on {host} works there, but a Dask worker on {host} finds {words}; use a"
    )


@pytest.mark.parametrize("invalid", ["missing", "drop"])
def test_a_model_that_was_trained_without_invalid_cells_still_says_of_each_row_what_became_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invalid: Any
) -> None:
    path = tmp_path / "train.csv"
    path.write_text("id,a,b,y\nx,1.5,2.5,0\ny,3,4,1\nz,no,4,1\n")
    learned = Csv(
        path=str(path), label="y", key_columns=["id"], invalid=invalid, columns={"a": ColumnOptions(type="number")}
    )
    schema = learned.read().learn("drop", "the train input").schema()
    monkeypatch.setattr("tests.tasks.prediction.test_worker.trained", lambda tmp_path: schema)
    made = plan(tmp_path, "id,a,b\nu,1,2\nv,no,4\nw,5,6\n", monkeypatch, on_error="reject")
    facts = predict_partition(made.work, made.parts[0])
    assert (facts.rows, facts.rejects, facts.num_records) == (2, 1, 3)
    assert [(line["row"], line["text"]) for line in rejects(tmp_path)] == [(3, "v,no,4\n")]
    module._rows.cache_clear()
    stopped = replace(made.work, on_error="stop")
    with pytest.raises(InputError, match=r"in\.csv, row 3 .*: column 'a' expects a number, got 'no'"):
        predict_partition(stopped, made.parts[0])


@pytest.mark.parametrize("on_error", ["stop", "reject"])
def test_invalid_cells_are_read_as_missing_counted_and_filled_as_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_error: Any
) -> None:
    text = "id,a,b\nu,1,2\nv,no,4\nw,,6\nx,7,n/a?\n"
    made = plan(tmp_path, text, monkeypatch, invalid="missing", on_error=on_error, loaded=FilledSums())
    facts = predict_partition(made.work, made.parts[0])
    assert (facts.rows, facts.rejects) == (4, 0)
    assert pq.read_table(tmp_path / "out").to_pydict()["sum"] == [3, 4, 6, 7]
    assert facts.invalid_rows == 2
    counts = {name: (count.cells, count.first_row) for name, count in facts.invalid.items()}
    assert counts == {"column 'a'": (1, 3), "column 'b'": (1, 5)}
    assert facts.not_finite_rows == 3  # blank they are, too
    assert all_invalid([facts, facts])["columns"]["column 'a'"] == {
        "cells": 2,
        "first_row": 3,
        "file": str(tmp_path / "in.csv"),
    }
    refusing = replace(made.source, invalid="error")
    with pytest.raises(UsageError, match='invalid is "missing" there, here "error"'):
        plan_prediction(made.model, refusing, PredictionOptions(on_error=on_error), str(tmp_path / "out"))


def test_a_row_with_an_invalid_cell_that_is_rejected_for_another_reason_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "id,a,b\nu,1,2\nv,no,4\nshort,1\nw,no,13\nx,5,6\n"
    made = plan(tmp_path, text, monkeypatch, invalid="missing", on_error="reject", loaded=FilledSums())
    facts = predict_partition(made.work, made.parts[0])
    assert (facts.rows, facts.rejects, facts.num_records) == (3, 2, 5)
    assert [line["row"] for line in rejects(tmp_path)] == [4, 5]
    assert (facts.invalid_rows, facts.invalid["column 'a'"].cells) == (1, 1)
    module._rows.cache_clear()
    refused = replace(made.work, source=replace(made.source, non_finite="error"))
    facts = predict_partition(refused, made.parts[0])
    assert (facts.rows, facts.rejects, facts.invalid_rows) == (2, 3, 0)
    assert rejects(tmp_path)[0]["reason"] == "a missing, NaN or infinite cell in column 'a', which non_finite refuses"


def test_invalid_is_for_tabular_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", a=np.zeros(2))
    with pytest.raises(InputError, match=r"invalid is missing, but .*in\.npz cannot have cells .* leave it out"):
        prediction_input(str(tmp_path / "in.npz"), invalid="missing")
