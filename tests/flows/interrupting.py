"""Trainings that a signal ends, and the same command resumes."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from tests.flows.conftest import TIMEOUT_SECS, Project

__all__ = ["LINE", "interrupted", "metric_points", "prefect_states", "resumed_without_a_doubled_point", "write_line"]


def metric_points(project: Project, run_id: str) -> dict[str, list[int]]:
    client = MlflowClient(f"sqlite:///{project.path}/mlflow.db")
    keys = client.get_run(run_id).data.metrics
    return {key: [point.step for point in client.get_metric_history(run_id, key)] for key in keys}


def prefect_states(project: Project, table: str) -> dict[str, str]:
    with sqlite3.connect(project.path / "prefect" / "prefect.db") as database:
        return dict(database.execute(f"select name, state_type from {table}").fetchall())


LINE = """
experiment: line
seed: 1
model: {name: "my_models:line", params: {learning_rate: 0.1}}
input:
  train: {name: "my_models:points", params: {num_batches: 200}}
  eval: {name: "my_models:points", params: {num_batches: 3}}
train: {save_checkpoints_steps: 100}
"""


def write_line(project: Project, text: str = LINE) -> str:
    """Write a configuration and its model beside it; return the path of the former."""
    project.write("my_models.py", Path(__file__).with_name("user_models.py").read_text())
    return project.write("line.yaml", text)


def interrupted(project: Project, number: signal.Signals, *arguments: str, group: bool = False) -> None:
    """Train for long, send a signal once there are three more checkpoints, and see everything end."""
    process = project.start("train", *arguments, "train.max_steps=200000", "train.log_step_count_steps=50")
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if sum("checkpoint of step" in each for each in said) == 3:
            break
    if group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, err = process.communicate(timeout=TIMEOUT_SECS)
    assert process.returncode == 128 + number, "".join(said) + err
    assert "Traceback" not in err
    assert set(prefect_states(project, "flow_run").values()) == {"CANCELLED"}


def resumed_without_a_doubled_point(project: Project, *arguments: str) -> dict[str, Any]:
    """Train on for a while, and return the answer."""
    [*_, last] = sorted(project.path.glob("runs/*/checkpoints/step_*"))
    max_steps = int(last.name.removeprefix("step_")) + 401  # to another checkpoint, and beyond it
    answer = project.run("train", *arguments, f"train.max_steps={max_steps}", "train.log_step_count_steps=50")
    assert answer["final_step"] == max_steps
    assert answer["final_step"] in answer["evaluated_steps"]
    client = MlflowClient(f"sqlite:///{project.path}/mlflow.db")
    assert [run.info.run_id for run in client.search_runs(["1"])] == [answer["run_id"]]
    for key, steps in metric_points(project, answer["run_id"]).items():
        assert len(steps) == len(set(steps)), key
    return answer
