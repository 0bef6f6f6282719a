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
from tests.flows.conftest import ROOT, Project

pytestmark = [pytest.mark.timeout(600), pytest.mark.cluster]


def test_a_run_that_fails_is_tried_again_in_the_same_mlflow_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    monkeypatch.setenv("PREFECT_FLOWS_DEFAULT_RETRIES", "1")
    process = project.start(
        "train", str(ROOT / "conf" / "digits.yaml"), "train.max_steps=9000", "cluster.max_restarts=0"
    )
    job = tmp_path / "runs" / "digits"
    wait_for(lambda: list(job.glob("checkpoints/step_00000300/manifest.json")), 150.0, "a checkpoint")
    owner = json.loads((job / "job.json").read_text())["owner"]["process"]["pid"]
    below = psutil.Process(owner).children(recursive=True)
    roles = [process for process in below if process.ppid() != owner and "forkserver" in " ".join(process.cmdline())]
    os.kill(roles[0].pid, signal.SIGKILL)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[-1])["final_step"] == 9000
    assert json.loads((job / "job.json").read_text())["facts"]["attempts"] == 2
    [run] = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").search_runs(["1"])
    assert run.info.status == "FINISHED"
