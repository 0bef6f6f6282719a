"""The training flow as a person runs it: a command, real servers and stores, real processes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from distributed import Client
from mlflow import MlflowClient

from tests.flows import planted_secrets
from tests.flows.conftest import TIMEOUT_SECS, Project

pytestmark = pytest.mark.cluster


def metric_points(project: Project, run_id: str) -> dict[str, list[int]]:
    client = MlflowClient(f"sqlite:///{project.path}/mlflow.db")
    keys = client.get_run(run_id).data.metrics
    return {key: [point.step for point in client.get_metric_history(run_id, key)] for key in keys}


def prefect_states(project: Project, table: str) -> dict[str, str]:
    with sqlite3.connect(project.path / "prefect" / "prefect.db") as database:
        return dict(database.execute(f"select name, state_type from {table}").fetchall())


def assert_shows_what_it_did(project: Project, answer: dict[str, Any], points: dict[str, list[int]]) -> None:
    """Look for the run where people browse: files and tags in MLflow, artifacts in Prefect, what roles logged."""
    client = MlflowClient(f"sqlite:///{project.path}/mlflow.db")
    run = client.get_run(answer["run_id"])
    plots = {Path(file.path).name for file in client.list_artifacts(answer["run_id"], "plots")}
    assert plots == {"learning_curves.png", "confusion_matrix.png", "roc.png", "precision_recall.png"}
    conf = Path(client.download_artifacts(answer["run_id"], "config.yaml", str(project.path))).read_text()
    assert "max_steps: 1500" in conf
    assert run.data.tags["psflow.progress"].startswith("step 1500/1500 (100 %)")
    assert run.data.tags["psflow.prefect_flow_run"] in run.data.tags["mlflow.note.content"]
    for role in answer["roles"]:
        assert points[f"role/{role}/rss_mb"]
    assert points["system/cpu_utilization_percentage"][-1] == 1500
    with sqlite3.connect(project.path / "prefect" / "prefect.db") as database:
        artifacts = dict(database.execute("select key, data from artifact where key is not null").fetchall())
        labels = database.execute("select labels from flow_run").fetchone()[0]
    assert set(artifacts) == {"digits-progress", "digits-evaluations", "digits-summary"}
    assert artifacts["digits-progress"] == 100
    assert answer["run_id"] in labels


def test_digits_end_to_end_where_nothing_was_made_before(tmp_path: Path, digits: str) -> None:
    project = Project(tmp_path)
    answer = project.run("train", digits)

    assert answer["final_step"] == answer["max_steps"] == 1500
    assert answer["checkpoints"] == [300, 600, 900, 1200, 1500]
    assert answer["evaluated_steps"] == [0, *answer["checkpoints"]]
    assert answer["best"]["metrics"]["accuracy"] >= 0.95
    assert answer["input"]["epochs_completed"] in (32, 33)  # one replica may have a split of an earlier epoch open
    assert (answer["input"]["repeats"], answer["input"]["misses"]) == (0, 0)
    assert set(answer["roles"]) == {"ps-0", "chief-0", "worker-0", "evaluator-0"}
    assert {(role["exit"], role["transport"]) for role in answer["roles"].values()} == {("finished", "shm")}
    assert 0 < answer["wall_secs"]["to_first_step"] < answer["wall_secs"]["total"]

    client = MlflowClient(f"sqlite:///{project.path}/mlflow.db")
    run = client.get_run(answer["run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.params["model.params.hidden_units"] == "[64]"
    points = metric_points(project, answer["run_id"])
    assert sorted(points["eval/accuracy"]) == answer["evaluated_steps"]
    assert len(points["loss"]) == len(set(points["loss"])) == 15
    best = client.get_model_version_by_alias("psflow-digits", "best")
    assert answer["best"]["model_uri"] == f"models:/psflow-digits/{best.version}"

    assert_shows_what_it_did(project, answer, points)
    states = prefect_states(project, "task_run")
    assert states == dict.fromkeys(answer["roles"], "COMPLETED")
    assert set(prefect_states(project, "flow_run").values()) == {"COMPLETED"}

    resumed = project.run("train", digits)  # there is nothing left to do, and it says so
    assert resumed["run_id"] == answer["run_id"]
    assert resumed["final_step"] == 1500
    assert resumed["train"]["steps"] == 0
    assert metric_points(project, answer["run_id"]) == points


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


def assert_no_secret_is_told(project: Project, told: str) -> None:
    """Look for the credentials of the configuration in what was said, and in every file that was made of it."""
    assert "'presigned': 'https://host/t.csv'" in told  # it is told what the input_fn reads, and so is the log
    assert "'presigned': 'https://host/t.csv'" in (project.path / "runs/line/logs/roles.log").read_text()
    assert planted_secrets.MARK not in told
    assert planted_secrets.holders(project.path) == {"line.yaml": 0o044, "runs/line/config.yaml": 0}
    assert (project.path / "runs/line/job.json").stat().st_mode & 0o077 == 0


def test_a_users_own_model_and_generator_train_over_tcp_until_the_data_end(project: Project) -> None:
    told = "params: {num_batches: 200}"
    assert told in LINE
    conf = write_line(project, LINE.replace(told, f"params: {{num_batches: 200, secrets: {planted_secrets.YAML}}}"))
    holes = ["input.train.params.holes=true", "input.train.non_finite=drop"]
    held_out = "input.eval={name: 'my_models:held_out', non_finite: drop}"
    roles = ["cluster.ps=2", "cluster.workers=3", "transport=tcp"]
    answer, said = project.heard("train", conf, *roles, *holes, held_out)
    assert_no_secret_is_told(project, f"{answer}{said}")
    assert answer["final_step"] == 200
    assert answer["max_steps"] is None
    assert answer["evaluated_steps"] == [0, 100, 200]
    assert answer["input"] == {"examples": 1600, "epochs_completed": 1, "repeats": 0, "misses": 0}
    assert answer["non_finite"] == {"eval": {"rows": 1, "dropped": True}}
    logged = (Path(answer["model_dir"]) / "logs" / "roles.log").read_text()
    assert "input_fn points: left out 200 rows with a blank, NaN or infinite cell" in logged
    assert len(answer["roles"]) == 7
    assert {(role["exit"], role["transport"]) for role in answer["roles"].values()} == {("finished", "tcp")}
    assert Path(answer["model_dir"]) == project.path / "runs" / "line"
    assert answer["best"]["metrics"]["loss"] < 0.01
    loaded = mlflow.pyfunc.load_model(str(project.path / answer["best"]["export_path"]))
    predicted = loaded.predict({"x": np.float32([0, 1])})
    assert predicted["y"] == pytest.approx([1, 3], abs=0.3)


@pytest.fixture
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Dask cluster that psflow did not start, in a directory of its own; give the address of its scheduler."""
    directory = tmp_path_factory.mktemp("cluster")
    dask = [str(Path(sys.executable).with_name("dask"))]
    file = directory / "scheduler.json"
    common = ["--no-dashboard", "--scheduler-file", str(file)]
    environment = {**os.environ, "TMPDIR": str(directory)}
    quiet: dict[str, Any] = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "cwd": directory,
        "env": environment,
    }
    own = subprocess.Popen([*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", *common], **quiet)
    options = ["--nthreads", "1", "--no-nanny", "--nworkers", "1", *common]
    workers = [subprocess.Popen([*dask, "worker", *options], **quiet) for _ in range(4)]
    try:
        deadline = time.monotonic() + TIMEOUT_SECS
        while not file.exists() and time.monotonic() < deadline:
            with pytest.raises(subprocess.TimeoutExpired):
                own.wait(0.1)
        yield json.loads(file.read_text())["address"]
    finally:
        for process in (*workers, own):
            process.kill()
            process.wait()


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
    max_steps = int(last.name.removeprefix("step_")) + 1001
    answer = project.run("train", *arguments, f"train.max_steps={max_steps}", "train.log_step_count_steps=50")
    assert answer["final_step"] == max_steps
    assert answer["final_step"] in answer["evaluated_steps"]
    client = MlflowClient(f"sqlite:///{project.path}/mlflow.db")
    assert [run.info.run_id for run in client.search_runs(["1"])] == [answer["run_id"]]
    for key, steps in metric_points(project, answer["run_id"]).items():
        assert len(steps) == len(set(steps)), key
    return answer


def test_signals_end_everything_and_the_same_command_resumes(project: Project, digits: str) -> None:
    interrupted(project, signal.SIGINT, digits, group=True)
    interrupted(project, signal.SIGTERM, digits, group=True)
    resumed_without_a_doubled_point(project, digits)


def test_on_a_cluster_of_others_a_signal_ends_the_roles_alone(project: Project, scheduler: str) -> None:
    endless = LINE.replace("num_batches: 200", f"num_batches: {10**9}").replace("_steps: 100", "_steps: 1000")
    conf = write_line(project, endless)
    address = f"cluster.address={scheduler}"
    interrupted(project, signal.SIGTERM, conf, address)
    with Client(scheduler) as client:
        assert len(client.scheduler_info(n_workers=-1)["workers"]) == 4
        assert not any(client.processing().values())
    answer = resumed_without_a_doubled_point(project, conf, address)
    assert answer["best"]["model_uri"].startswith("models:/psflow-line/")
