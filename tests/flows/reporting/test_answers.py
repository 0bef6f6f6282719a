"""The lines that commands end with."""

from __future__ import annotations

from typing import Any

import pytest

from psflow.flows.reporting.summary import (
    shown_dry_run,
    shown_evaluations,
    shown_export,
    shown_pipeline,
    shown_predictions,
)

EVALUATED: dict[str, Any] = {
    "results": [{"step": 300, "eval": "eval", "metrics": {"accuracy": 0.97222, "loss": float("inf")}}],
    "num_evaluated": 1,
    "num_known": 5,
    "run_id": "r2",
}
EXPORTED: dict[str, Any] = {
    "model_uri": "models:/psflow-digits/5",
    "alias": "best",
    "step": 300,
    "metrics": {"accuracy": 0.97222},
    "path": "runs/digits/export/best/5",
    "is_new": True,
    "run_id": "r1",
    "passed_over": [],
}
PREDICTED: dict[str, Any] = {
    "rows": 360,
    "rejects": 0,
    "non_finite": {"rows": 0, "columns": {}},
    "invalid": {"rows": 0, "columns": {}},
    "parts": 2,
    "output": "out",
    "folders": ["out"],
    "model_uri": "models:/psflow-digits@best",
    "model_version": "5",
    "global_step": 300,
}


def test_evaluations() -> None:
    row, counts, run = shown_evaluations(EVALUATED)
    assert row == "step 300      eval         accuracy 0.9722, loss inf"
    assert (counts, run) == ("1 evaluated, 5 already in the record", "MLflow run r2")
    assert len(shown_evaluations({**EVALUATED, "results": [], "run_id": None})) == 1


def test_export() -> None:
    assert shown_export(EXPORTED) == [
        "exported     step 300: accuracy 0.9722",
        "model        models:/psflow-digits/5, alias best",
        "path         runs/digits/export/best/5",
        "MLflow run   r1",
    ]


def test_export_of_what_was_there_while_better_ones_are_gone() -> None:
    first, model, *_, last = shown_export({**EXPORTED, "is_new": False, "alias": None, "passed_over": [600, 900]})
    assert first == "exported     step 300: accuracy 0.9722 (it existed already)"
    assert model == "model        models:/psflow-digits/5"
    assert last == "better       steps 600, 900 were better, but their checkpoints and exports no longer exist"


@pytest.mark.parametrize(("version", "shown"), [("5", ", version 5"), (None, "")])
def test_predictions(version: str | None, shown: str) -> None:
    assert shown_predictions({**PREDICTED, "model_version": version}) == [
        "predicted    360 rows in 2 parts",
        f"model        models:/psflow-digits@best{shown}, of step 300",
        "output       out",
    ]


def test_rows_that_were_predicted_from_what_is_no_number_are_reported() -> None:
    found = {"rows": 2, "columns": {"column 'b'": {"cells": 2, "first_row": 3}}}
    [line] = [line for line in shown_predictions({**PREDICTED, "non_finite": found}) if line.startswith("not finite")]
    assert line == "not finite   2 of these rows have a missing, NaN or infinite cell, in column 'b'"


def test_cells_that_were_read_as_missing_are_reported() -> None:
    found = {"rows": 1, "columns": {"column 'a'": {"cells": 1, "first_row": 3}}}
    [line] = [line for line in shown_predictions({**PREDICTED, "invalid": found}) if line.startswith("invalid")]
    assert line == "invalid      1 of these rows have an invalid cell, read as missing, in column 'a'"


def test_a_dry_run_shows_what_would_be_done() -> None:
    one = {
        "output": "out",
        "model_uri": "models:/m/3",
        "files": 2,
        "rows": 1234,
        "bytes": 3 * 2**20,
        "parts": 2,
        "finished_parts": 1,
        "columns": {"id": "string", "logits": "float[2]"},
        "unused": [],
        "invalid": "error",
    }
    assert shown_dry_run({"predictions": [one]}) == [
        "input        1,234 rows of 2 files, 3.0 MiB",
        "partitions   2, of which 1 are done",
        "model        models:/m/3",
        "output       out",
        "columns      id: string, logits: float[2]",
    ]
    assert shown_dry_run({"predictions": [{**one, "invalid": "missing"}]})[-1] == (
        "invalid      cells that are not of the type of their column become missing values"
    )
    assert shown_dry_run({"predictions": []}) == ["no new files since the last run"]


def test_a_run_without_new_files_says_so() -> None:
    line, *_ = shown_predictions({**PREDICTED, "rows": 0, "parts": 0, "folders": []})
    assert line == "predicted    no new files since the last run"


def test_rows_that_were_rejected_are_reported() -> None:
    [line] = [line for line in shown_predictions({**PREDICTED, "rejects": 3}) if line.startswith("rejected")]
    assert line == "rejected     3 rows that could not be read or predicted, see _rejects in the output"


def test_a_pipeline_shows_the_lines_of_each_stage_that_it_has() -> None:
    done = {"model_dir": "runs/digits", "final_step": 300, "was_done": True}
    lines = shown_pipeline({"train": done, "export": EXPORTED, "predict": PREDICTED, "wall_secs": 12.34})
    assert [line for line in lines if not line.startswith("  ")] == ["train", "export", "predict", "12.3 s in all"]
    assert lines[1:3] == ["  trained      to step 300 already", "  model_dir    runs/digits"]
