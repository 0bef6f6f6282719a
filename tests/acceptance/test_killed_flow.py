"""A training whose flow is killed: the same command resumes it, and the MLflow run names what was lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.acceptance.conftest import wait_for
from tests.acceptance.test_lost_roles import CONF, MODEL, TIMEOUT_SECS
from tests.flows.conftest import Project
from tests.flows.interrupting import metric_points

pytestmark = [pytest.mark.timeout(1000), pytest.mark.cluster]

SETTINGS = ("train.max_steps=3000", "train.save_checkpoints_steps=1000")


def test_the_steps_after_the_last_checkpoint_of_a_killed_flow_are_named(tmp_path: Path) -> None:
    project = Project(tmp_path, TIMEOUT_SECS)
    project.write("slope_model.py", MODEL)
    (tmp_path / "pids").mkdir()
    (tmp_path / "go").touch()
    command = ("train", project.write("slope.yaml", CONF), *SETTINGS)
    run = tmp_path / "runs/slope"
    process = project.start(*command)
    wait_for((run / "checkpoints/step_00001000/manifest.json").exists, TIMEOUT_SECS, "the checkpoint of step 1000")
    run_id = json.loads((run / "job.json").read_text())["run_id"]
    wait_for(lambda: max(metric_points(project, run_id)["loss"]) > 1200, TIMEOUT_SECS, "steps after the checkpoint")
    process.kill()
    process.communicate(timeout=TIMEOUT_SECS)
    newest = max(metric_points(project, run_id)["loss"])

    out, said = project.heard(*command)
    [told] = [line for line in said.splitlines() if "are lost, and made again" in line]
    data = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(run_id).data
    lost = data.tags["psflow.lost_steps"]
    first, reached = map(int, lost.split("-"))
    assert f"training goes on from step {first - 1}; steps {lost} are lost" in told
    assert (first, reached >= newest) == (1001, True)
    num_lost = reached - 1000
    assert f"lost steps {num_lost}" in said
    assert data.metrics["lost_steps"] == num_lost
    assert (out["run_id"], out["final_step"], data.tags["psflow.reached_step"]) == (run_id, 3000, "3000")

    _, said = project.heard(*command, "train.max_steps=3100")  # from its very end: nothing is lost with that
    assert "are lost" not in said
    assert MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(run_id).data.tags["psflow.lost_steps"] == lost
