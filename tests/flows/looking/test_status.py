from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import pytest
from mlflow.entities import Metric

from psflow.flows import cli
from psflow.flows.looking.status import status
from psflow.ps_runtime.checkpoint.job_file import JobFile, JobRecord
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.tasks.owners import OWNER, owner_text
from psflow.tasks.tracking.run import open_run
from psflow.tasks.tracking.store import mlflow_client, prepare_store
from tests.new_databases import copy_store


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(job: str, owner: str) -> str:
    """Record a running job as its flow does."""
    client = mlflow_client(prepare_store())
    run = open_run(
        client,
        experiment="e",
        run_name=f"e-{job}",
        run_id=None,
        params={},
        tags={
            "psflow.job_id": job,
            "psflow.kind": "train",
            "psflow.model_dir": os.path.abspath(f"runs/{job}"),
            "psflow.progress": "step 600/1500 (40 %)",
            OWNER: owner,
        },
        datasets=[],
    )
    now = int(1000 * time.time())
    figures = {"chief-0": 100.0, "worker-0": 20.0}
    metrics = [Metric(f"role/{role}/steps_per_sec", value, now - 2000, 600) for role, value in figures.items()]
    metrics += [Metric("role/chief-0/push_p95_ms", 1.25, now - 2000, 600)]
    metrics += [Metric("role/chief-0/sent_bytes_per_sec", 12.5e6, now, 600), Metric("role/ps-0/rss_mb", 74.0, now, 600)]
    client.log_batch(run.info.run_id, metrics)
    return str(run.info.run_id)


def test_where_nothing_was_done_nothing_runs_and_nothing_is_made(directory: Path) -> None:
    answer = status()
    assert answer.lines is not None
    assert answer.lines[-1] == "no job is running"
    assert (answer.facts["jobs"], answer.facts["starting"]) == ([], [])
    assert list(directory.iterdir()) == []


def test_running_jobs_are_told_with_their_roles_and_the_straggler(directory: Path) -> None:
    copy_store(directory)
    run_id = record("living", owner_text())
    orphaned = record("orphaned", owner_text().replace(f'"pid": {os.getpid()}', '"pid": 4194303'))
    untold = record("untold", owner_text().replace(f'"pid": {os.getpid()}', '"pid": 4194303'))
    (directory / "runs" / "untold").mkdir(parents=True)
    (directory / "runs" / "untold" / "job.json").write_text(JobRecord("untold", facts={"ended_step": 1500}).to_json())
    ended = record("ended", owner_text())
    mlflow_client(prepare_store()).set_terminated(ended, "FINISHED")
    answer = status()
    jobs = {job["run_id"]: job for job in answer.facts["jobs"]}
    assert set(jobs) == {run_id, orphaned, untold}
    job = jobs[run_id]
    assert job["model_dir"] == f"{directory}/runs/living"
    assert job["progress"] == "step 600/1500 (40 %)"
    assert [role["role"] for role in job["roles"]] == ["ps-0", "chief-0", "worker-0"]
    assert job["stragglers"] == ["worker-0 makes 20 steps/s, the median of the replicas is 60"]
    assert jobs[orphaned]["stragglers"] == ["its process is gone; the command that started it resumes it"]
    assert jobs[untold]["stragglers"] == [
        "training reached step 1500, but MLflow could not be reached; run the same command again to add to MLflow what "
        "it lacks: checkpoints, evaluations, the best export, and the training metrics that were kept"
    ]
    assert answer.lines is not None
    assert ["chief-0", "100", "-", "-", "1.25", "12.5", "-", "-", "-"] in [line.split()[:9] for line in answer.lines]
    assert "  ! worker-0 makes 20 steps/s, the median of the replicas is 60" in answer.lines


def test_a_job_that_has_no_run_yet_is_starting_and_a_damaged_one_is_told(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    JobFile("runs/new").claim()
    left = JobFile("runs/left")
    left.claim()
    left.release()
    (directory / "runs" / "damaged").mkdir()
    (directory / "runs" / "damaged" / "job.json").write_text("{")
    monkeypatch.setattr(ProcessId, "current", lambda: ProcessId("elsewhere", "boot", 7, 7))
    monkeypatch.setattr(ProcessId, "is_alive", lambda self: True)
    answer = status()
    assert answer.facts["starting"] == [f"{directory}/runs/new"]
    (fault,) = answer.facts["damaged"]
    assert fault.startswith(f"checkpoint {directory}/runs/damaged/job.json: damaged: ")
    assert answer.lines is not None
    assert fault in answer.lines


def test_a_server_that_is_away_is_told_and_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    answer = io.StringIO()
    assert cli.run(["status", "--json"], answer) == 0
    assert json.loads(answer.getvalue())["servers"]["mlflow"]["ok"] is False
