"""The training flow from the command line, with real servers, stores and processes.

Tests in tests/acceptance interrupt it, resume it, and begin where there is no database yet.
"""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
from mlflow import MlflowClient

from tests.flows import planted_secrets
from tests.flows.conftest import Project
from tests.flows.interrupting import LINE, metric_points, prefect_states, write_line

NUM_TRAINING_IMAGES = 1437  # four fifths of 1,797

pytestmark = pytest.mark.cluster


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


def assert_counts_each_example_and_step(answer: dict[str, Any], reported: list[int]) -> None:
    """Compare the numbers of the answer with the last checkpoint, however the two replicas shared the steps."""
    manifest = Path(answer["model_dir"]) / "checkpoints" / "step_00001500" / "manifest.json"
    job = json.loads(manifest.read_text())["body"]["job"]
    (position,) = job["input"]["positions"]
    of_begun_epochs = sum(stop - start for used in position["used"].values() for start, stop in used)
    completed = answer["input"]["epochs_completed"]
    assert answer["input"]["examples"] == completed * NUM_TRAINING_IMAGES + of_begun_epochs
    assert min(map(int, position["used"])) >= completed
    steps_of = {replica: num_pushes for replica, _, num_pushes in job["sequences"]}
    assert sum(steps_of.values()) == 1500
    hundreds = [step // 100 for step in reported]
    assert hundreds == sorted(set(hundreds) & set(range(1, 16)))
    assert hundreds[-1] == 15
    assert 15 - len(hundreds) <= steps_of[1] // 100  # the worker made each step of a hundred without a report


def ways_of(roles: dict[str, dict[str, Any]]) -> set[str]:
    """Return the transports of roles that have finished; the evaluator may be so late that ps-0 has ended."""
    assert {role["exit"] for role in roles.values()} == {"finished"}
    return {role["transport"] for name, role in roles.items() if (name, role["transport"]) != ("evaluator-0", "none")}


def test_digits_end_to_end(project: Project, digits: str) -> None:
    answer = project.run("train", digits, "--timings")

    assert answer["final_step"] == answer["max_steps"] == 1500
    phases = [row["phase"] for row in answer["timings"]]
    ends = ["imports", "plan", "cluster", "ps listening", "first step", "last step", "last export", "end of all roles"]
    assert [phase for phase in phases if phase in ends] == ends
    assert phases[-1] == "end of the Prefect server"
    assert all(row["secs"] >= 0 for row in answer["timings"])
    assert answer["checkpoints"] == [300, 600, 900, 1200, 1500]
    assert answer["evaluated_steps"] == [0, *answer["checkpoints"]]
    assert answer["best"]["metrics"]["accuracy"] >= 0.95
    assert (answer["input"]["repeats"], answer["input"]["misses"]) == (0, 0)
    assert set(answer["roles"]) == {"ps-0", "chief-0", "worker-0", "evaluator-0"}
    assert ways_of(answer["roles"]) == {"shm"}
    assert 0 < answer["wall_secs"]["to_first_step"] < answer["wall_secs"]["total"]

    client = MlflowClient(f"sqlite:///{project.path}/mlflow.db")
    run = client.get_run(answer["run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.params["model.params.hidden_units"] == "[64]"
    points = metric_points(project, answer["run_id"])
    assert sorted(points["eval/accuracy"]) == answer["evaluated_steps"]
    assert_counts_each_example_and_step(answer, points["loss"])
    [best] = client.search_model_versions("name = 'psflow-digits'")
    assert client.get_registered_model("psflow-digits").aliases == {"best": best.version}
    assert best.tags["psflow.step"] == str(answer["best"]["step"])
    exports = client.search_logged_models([run.info.experiment_id], "attributes.model_type = 'export'")
    assert {model.tags["psflow.step"] for model in exports} > {best.tags["psflow.step"]}
    assert answer["best"]["model_uri"] == f"models:/psflow-digits/{best.version}"

    assert_shows_what_it_did(project, answer, points)
    states = prefect_states(project, "task_run")
    assert states == dict.fromkeys(answer["roles"], "COMPLETED")
    assert set(prefect_states(project, "flow_run").values()) == {"COMPLETED"}


def assert_no_secret_is_told(project: Project, told: str, password: str) -> None:
    """Look for the credentials of the configuration, and of Prefect's address, in what was said and in every file."""
    assert "'presigned': 'https://host/t.csv'" in told  # the error names what the input_fn reads, and so does the log
    assert "'presigned': 'https://host/t.csv'" in (project.path / "runs/line/logs/roles.log").read_text()
    assert planted_secrets.MARK not in told
    assert planted_secrets.holders(project.path) == {"line.yaml": 0o044, "runs/line/config.yaml": 0}
    prefect_home = Path(os.environ["PREFECT_HOME"])
    assert (prefect_home / "prefect.db").is_file()  # of the server that PREFECT_API_URL names
    assert planted_secrets.holders(prefect_home) == {}
    assert password not in told
    assert planted_secrets.holders(project.path, password) == planted_secrets.holders(prefect_home, password) == {}
    assert (project.path / "runs/line/job.json").stat().st_mode & 0o077 == 0


def test_a_users_own_model_and_generator_train_over_tcp_until_the_data_end(served_project: Project) -> None:
    user, _, password = os.environ["PREFECT_API_AUTH_STRING"].partition(":")
    url = str(served_project.prefect_url)
    project = replace(served_project, prefect_url=url.replace("://", f"://{user}:{password}@"))
    told = "params: {num_batches: 200}"
    assert told in LINE
    conf = write_line(project, LINE.replace(told, f"params: {{num_batches: 200, secrets: {planted_secrets.YAML}}}"))
    holes = ["input.train.params.holes=true", "input.train.non_finite=drop"]
    held_out = "input.eval={name: 'my_models:held_out', non_finite: drop}"
    roles = ["cluster.ps=2", "cluster.workers=3", "transport=tcp"]
    answer, said = project.heard("train", conf, *roles, *holes, held_out, "plots=false")
    assert_no_secret_is_told(project, f"{answer}{said}", password)
    assert answer["pages"]["prefect"].startswith(url.removesuffix("api"))
    assert answer["final_step"] == 200
    assert answer["max_steps"] is None
    assert answer["stop_reason"] == "the input ended after 200 steps (1,600 examples in 1 epoch)"
    run = MlflowClient(f"sqlite:///{project.path}/mlflow.db").get_run(answer["run_id"])
    assert run.data.tags["psflow.stop_reason"] == answer["stop_reason"]
    assert answer["evaluated_steps"] == [0, 100, 200]
    assert answer["input"] == {"examples": 1600, "epochs_completed": 1, "repeats": 0, "misses": 0}
    assert answer["non_finite"] == {"eval": {"rows": 1, "dropped": True}}
    logged = (Path(answer["model_dir"]) / "logs" / "roles.log").read_text()
    assert "input_fn points: left out 200 rows with a missing, NaN or infinite cell" in logged
    assert len(answer["roles"]) == 7
    assert ways_of(answer["roles"]) == {"tcp"}
    assert Path(answer["model_dir"]) == project.path / "runs" / "line"
    assert answer["best"]["metrics"]["loss"] < 0.01
    loaded = mlflow.pyfunc.load_model(str(project.path / answer["best"]["export_path"]))
    predicted = loaded.predict({"x": np.float32([0, 1])})
    assert predicted["y"] == pytest.approx([1, 3], abs=0.3)
