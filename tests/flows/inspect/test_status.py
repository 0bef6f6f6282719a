from __future__ import annotations

import io
import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Metric

from psflow.flows import cli
from psflow.flows.inspect import endpoints
from psflow.flows.inspect.runs import status
from psflow.ps_runtime.checkpoint.job_file import JobFile, JobRecord
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import ConfigError
from psflow.tasks.owners import OWNER, owner_text
from psflow.tasks.tracking.child_run import RunningRun
from psflow.tasks.tracking.run import open_run
from psflow.tasks.tracking.store import mlflow_client, prepare_store
from tests.limits import HANG_SECS
from tests.new_databases import copy_store
from tests.ps_runtime.checkpoint.conftest import save


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
            "psflow.host.chief-0": "ada",
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


def test_a_running_job_is_scaled_by_its_model_dir_or_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    run_id = record("digits", "ada 1")
    job = JobFile("runs/digits")
    job.claim()
    job.update(workers={"least": 0, "most": 3, "wanted": None})
    for number, name in enumerate(["runs/digits", "e-digits", run_id[:12]]):
        assert cli.run(["scale", name, str(number)]) == 0
        shown = capsys.readouterr().out
        assert f"is to have {number} workers (0 to 3); it follows within seconds" in shown
        assert job.renew().facts["workers"]["wanted"] == number
    assert cli.run(["scale", "e-digits", "4"]) == 2
    assert "may have 0 to 3 workers, got 4" in capsys.readouterr().err
    assert cli.run(["scale", "nothing", "1"]) == 2
    assert "expected a run by its id, a prefix of its id, or its name" in capsys.readouterr().err


def test_the_status_of_one_job_is_that_of_its_model_dir_or_its_run(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_store(directory)
    run_id = record("digits", owner_text())
    record("clicks", owner_text())
    own_elsewhere(monkeypatch, "starting", "another")
    model_dir = directory / "runs" / "digits"
    model_dir.mkdir(parents=True)
    Path("link").symlink_to(model_dir)
    for name in ("runs/digits", "runs/digits/", str(model_dir), f"file://{model_dir}", "link", "e-digits", run_id[:12]):
        answer = status(name)
        assert ([job["run_id"] for job in answer.facts["jobs"]], answer.facts["starting"]) == ([run_id], [])
    assert status("runs/starting").facts["starting"] == [str(directory / "runs" / "starting")]
    Path("runs/idle").mkdir()
    assert cli.run(["status", "runs/idle"]) == 0
    assert f"no job is running in {directory / 'runs' / 'idle'}" in capsys.readouterr().out
    assert cli.run(["status", "nothing"]) == 2
    assert "expected a run by its id, a prefix of its id, or its name" in capsys.readouterr().err


@pytest.fixture(params=["a server that hangs", "a file that is locked"])
def silent_store(request: pytest.FixtureRequest, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An MLflow store that does not answer."""
    monkeypatch.setattr(endpoints, "STORE_ANSWER_SECS", 0.5)
    if request.param == "a server that hangs":
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{listening.getsockname()[1]}")
            yield
    else:
        copy_store(directory)
        with closing(sqlite3.connect(directory / "mlflow.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield
    for thread in threading.enumerate():
        if thread.name == "psflow-question":
            thread.join(HANG_SECS)


def own_elsewhere(monkeypatch: pytest.MonkeyPatch, *jobs: str) -> None:
    """Have other processes, which live, own jobs."""
    for job in jobs:
        JobFile(f"runs/{job}").claim()
    monkeypatch.setattr(ProcessId, "current", lambda: ProcessId("elsewhere", "boot", 7, 7))
    monkeypatch.setattr(ProcessId, "is_alive", lambda self: True)


def test_where_nothing_was_done_nothing_runs_and_nothing_is_made(directory: Path) -> None:
    answer = status()
    assert answer.lines is not None
    assert answer.lines[-1] == "no job is running"
    assert (answer.facts["jobs"], answer.facts["starting"]) == ([], [])
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("other", [b"", b"of another program"])
def test_a_file_without_a_store_is_left_as_it_is(directory: Path, other: bytes) -> None:
    file = directory / "mlflow.db"
    file.write_bytes(other)
    answer = status()
    assert answer.facts["jobs"] == []
    assert file.read_bytes() == other
    state = "a file in which the first run creates the tables" if not other else "a file that exists"
    assert answer.facts["servers"]["mlflow"]["state"] == state


def test_running_jobs_are_reported_with_their_roles_and_the_straggler(directory: Path) -> None:
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
    assert jobs[orphaned]["stragglers"] == ["its process has ended; the command that started it resumes it"]
    assert jobs[untold]["stragglers"] == [
        "training reached step 1500, but MLflow could not be reached; run the same command again to complete the "
        "MLflow run from model_dir (checkpoints, evaluations, the best export, metrics, tags and plots)"
    ]
    assert answer.lines is not None
    assert [(role["role"], role["host"]) for role in job["roles"]][:2] == [("ps-0", None), ("chief-0", "ada")]
    shown = [line.split() for line in answer.lines]
    assert ["chief-0", "100", "-", "-", "1.25", "12.5", "-", "-", "-"] in [words[:9] for words in shown]
    assert ["ada"] in [words[-1:] for words in shown if words[:1] == ["chief-0"]]
    assert "  ! worker-0 makes 20 steps/s, the median of the replicas is 60" in answer.lines


def test_a_job_that_has_no_run_yet_is_starting_and_a_damaged_one_is_reported(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = JobFile("runs/left")
    left.claim()
    left.release()
    (directory / "runs" / "damaged").mkdir()
    (directory / "runs" / "damaged" / "job.json").write_text("{")
    own_elsewhere(monkeypatch, "new")
    answer = status()
    assert (answer.facts["starting"], answer.facts["owned"]) == ([f"{directory}/runs/new"], [])
    (fault,) = answer.facts["damaged"]
    assert fault.startswith(f"checkpoint {directory}/runs/damaged/job.json: damaged: ")
    assert answer.lines is not None
    assert fault in answer.lines


def test_a_job_of_a_schedule_is_starting_where_its_model_dir_lies(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_elsewhere(monkeypatch, "nightly/20261121T020000Z")
    answer = status()
    assert answer.facts["starting"] == [f"{directory}/runs/nightly/20261121T020000Z"]


def test_no_folder_of_a_model_dir_is_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    JobFile("runs/nightly/20261121T020000Z").claim()
    save(CheckpointStore("runs/nightly/20261121T020000Z"), 100)
    listed: list[str] = []

    def noting(name: str) -> None:
        ask = getattr(os, name)

        def look(path: str = ".") -> Any:
            listed.append(str(path))
            return ask(path)

        monkeypatch.setattr(os, name, look)

    noting("scandir")
    noting("listdir")
    status()
    here = [
        (directory / path).relative_to(directory) for path in listed if (directory / path).is_relative_to(directory)
    ]
    assert sorted(str(path) for path in here if path.parts[:1] == ("runs",)) == ["runs", "runs/nightly"]


def test_a_server_that_is_away_is_reported_and_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    answer = io.StringIO()
    assert cli.run(["status", "--json"], answer) == 0
    assert json.loads(answer.getvalue())["servers"]["mlflow"]["ok"] is False


@pytest.mark.usefixtures("silent_store")
def test_while_mlflow_is_silent_a_job_is_reported_by_its_checkpoints(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_elsewhere(monkeypatch, "damaged", "far", "new")
    save(CheckpointStore("runs/far"), 4200)
    save(CheckpointStore("runs/far"), 4300)
    save(CheckpointStore("runs/damaged"), 100)
    manifest = directory / "runs" / "damaged" / "checkpoints" / "step_00000100" / "manifest.json"
    manifest.write_text("{")
    answer = status()
    assert answer.exit_code == 0
    assert answer.lines is not None
    assert "did not answer within 0.5 s: it hangs, or another process keeps its database locked" in answer.lines[1]
    assert [line for line in answer.lines[2:] if line][:3] == [
        f"train     in {directory}/runs/damaged, running; MLflow does not report its progress",
        f"train     in {directory}/runs/far, running; its last checkpoint is of step 4300",
        f"train     in {directory}/runs/new, running; MLflow does not report its progress",
    ]
    assert answer.lines[-1] == "cannot list other running jobs: MLflow does not answer"
    assert (answer.facts["jobs"], answer.facts["starting"]) == ([], [])
    assert answer.facts["owned"] == [
        {"model_dir": f"{directory}/runs/damaged", "last_checkpoint": None},
        {"model_dir": f"{directory}/runs/far", "last_checkpoint": 4300},
        {"model_dir": f"{directory}/runs/new", "last_checkpoint": None},
    ]
    (fault,) = answer.facts["damaged"]
    assert str(manifest) in fault


@pytest.mark.usefixtures("silent_store")
def test_while_mlflow_is_silent_it_is_not_reported_that_no_job_runs() -> None:
    answer = status()
    assert answer.lines is not None
    assert answer.lines[-1] == "cannot list running jobs: MLflow does not answer"


def test_a_store_that_says_that_it_is_locked_is_a_fault_of_one_line(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(uri: str) -> list[RunningRun]:
        raise ConfigError(("cannot list the running runs of the MLflow store: database is locked\n[SQL: SELECT name]",))

    copy_store(directory)
    monkeypatch.setattr(endpoints, "running_runs", locked)
    answer = status()
    assert answer.lines is not None
    assert answer.lines[1] == "mlflow    cannot list the running runs of the MLflow store: database is locked"
    assert answer.facts["servers"]["mlflow"]["ok"] is False
