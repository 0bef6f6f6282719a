"""The pipeline as a person runs it; a second start finds nothing to do."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.flows.conftest import PIPELINE_CONF, Project

pytestmark = [pytest.mark.piece(number=5), pytest.mark.ci, pytest.mark.cluster, pytest.mark.timeout(600)]


def answer_of(project: Project, conf: str) -> dict[str, Any]:
    process = project.start("pipeline", conf)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


def test_each_stage_runs_once(project: Project) -> None:
    conf = project.write("small.yaml", PIPELINE_CONF)
    first = answer_of(project, conf)
    assert list(first) == ["train", "evaluate", "export", "predict", "wall_secs"]
    assert first["train"]["final_step"] == 60
    assert (first["evaluate"]["num_evaluated"], first["evaluate"]["num_known"]) == (0, 3)
    assert (first["export"]["alias"], first["export"]["is_new"]) == ("best", False)
    assert first["predict"]["model_uri"] == first["export"]["model_uri"] == first["train"]["best"]["model_uri"]
    assert first["predict"]["rows"] == 360
    output = Path(first["predict"]["output"])
    assert output == project.path / "runs" / "small" / "predictions" / f"step_{first['export']['step']:08d}"
    written = {path: path.read_bytes() for path in (project.path / "runs").rglob("*") if path.is_file()}

    again = answer_of(project, conf)
    assert again["train"] == {"model_dir": str(project.path / "runs" / "small"), "final_step": 60, "was_done": True}
    assert again["predict"]["output"] == str(output)
    left = {path: path.read_bytes() for path in (project.path / "runs").rglob("*") if path.is_file()}
    assert left == written

    [run] = MlflowClient(f"sqlite:///{project.path}/mlflow.db").search_runs(["1"])
    assert run.info.status == "FINISHED"
    with sqlite3.connect(project.path / "prefect" / "prefect.db") as database:
        rows = database.execute("select name, state_type from flow_run order by created").fetchall()
    names = ["pipeline small", "train small to 60", "evaluate small all", "export small best", "predict digits:test"]
    assert {name for name, _ in rows} == set(names)
    assert {state for _, state in rows} == {"COMPLETED"}
