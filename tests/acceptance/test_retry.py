"""A flow that fails and is tried again by Prefect goes on with its job."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from tests.acceptance.conftest import wait_for
from tests.acceptance.test_lost_roles import CONF, MODEL, TIMEOUT_SECS
from tests.flows.conftest import Project

pytestmark = [pytest.mark.piece(number=4), pytest.mark.ci, pytest.mark.timeout(600), pytest.mark.cluster]


def test_a_run_that_fails_is_tried_again_in_the_same_mlflow_run(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("slope_model.py", MODEL)
    job, go = tmp_path / "runs" / "slope", tmp_path / "go"
    (tmp_path / "pids").mkdir()
    go.touch()
    monkeypatch.setenv("PREFECT_FLOWS_DEFAULT_RETRIES", "1")
    settings = ("train.max_steps=2000", "train.save_checkpoints_steps=100", "cluster.max_restarts=0")
    process = project.start("train", project.write("slope.yaml", CONF), *settings)
    wait_for(lambda: list(job.glob("checkpoints/step_00000100/manifest.json")), TIMEOUT_SECS, "a checkpoint")
    go.unlink()  # so that training does not come to its end before a role is killed
    owner = json.loads((job / "job.json").read_text())["owner"]["process"]["pid"]
    below = psutil.Process(owner).children(recursive=True)
    roles = [process for process in below if process.ppid() != owner and "forkserver" in " ".join(process.cmdline())]
    os.kill(roles[0].pid, signal.SIGKILL)

    def attempts() -> int:
        return int(json.loads((job / "job.json").read_text())["facts"]["attempts"])

    wait_for(lambda: attempts() == 2 or process.poll() is not None, TIMEOUT_SECS, "the second attempt")
    go.touch()
    out, err = process.communicate(timeout=TIMEOUT_SECS)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["final_step"] == 2000
    assert attempts() == 2
    [run] = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").search_runs(["1"])
    assert run.info.status == "FINISHED"
