"""A training whose flow is killed: the same command resumes it, and the MLflow run names what was lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from psflow.ps_runtime.checkpoint.store import CheckpointStore
from tests.acceptance.conftest import wait_for
from tests.acceptance.test_lost_roles import CONF, MODEL, TIMEOUT_SECS
from tests.flows.conftest import Project
from tests.flows.interrupting import metric_points

pytestmark = [pytest.mark.piece(number=4), pytest.mark.ci, pytest.mark.timeout(1000), pytest.mark.cluster]

SAVE_STEPS = 1000


def test_the_steps_after_the_last_checkpoint_of_a_killed_flow_are_named(
    served_project: Project, tmp_path: Path
) -> None:
    project = served_project
    project.write("slope_model.py", MODEL)
    (tmp_path / "pids").mkdir()
    (tmp_path / "go").touch()
    command = ("train", project.write("slope.yaml", CONF), f"train.save_checkpoints_steps={SAVE_STEPS}")
    run = tmp_path / "runs/slope"
    process = project.start(*command, "train.max_steps=100000")
    wait_for((run / "checkpoints/step_00001000/manifest.json").exists, TIMEOUT_SECS, "the checkpoint of step 1000")
    run_id = wait_for(
        lambda: json.loads((run / "job.json").read_text())["run_id"], TIMEOUT_SECS, "the MLflow run, opened meanwhile"
    )

    def newest_step() -> int:
        return max(metric_points(project, run_id).get("loss", {0: 0.0}))

    wait_for(lambda: 100 <= newest_step() % SAVE_STEPS < 700, TIMEOUT_SECS, "steps after a checkpoint")
    process.kill()
    process.communicate(timeout=TIMEOUT_SECS)
    newest, saved = newest_step(), CheckpointStore(str(run)).latest() or 0  # which may be newer by now
    last = saved + 2 * SAVE_STEPS

    out, said = project.heard(*command, f"train.max_steps={last}")
    [told] = [line for line in said.splitlines() if "are lost and repeated" in line]
    data = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(run_id).data
    lost = data.tags["psflow.lost_steps"]
    first, reached = map(int, lost.split("-"))
    assert f"training continues from step {first - 1}; steps {lost} are lost" in told
    assert (first, reached >= newest) == (saved + 1, True)
    num_lost = reached - saved
    assert f"lost steps {num_lost}" in said
    assert data.metrics["lost_steps"] == num_lost
    assert (out["run_id"], out["final_step"], data.tags["psflow.reached_step"]) == (run_id, last, str(last))

    _, said = project.heard(*command, f"train.max_steps={last + 100}")  # from its very end: nothing is lost with that
    assert "are lost" not in said
    assert MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(run_id).data.tags["psflow.lost_steps"] == lost
