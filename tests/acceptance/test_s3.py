"""Trainings whose model_dir is on S3: of a program and of the commands, killed, resumed, and while S3 is away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from mlflow import MlflowClient
from sklearn.datasets import load_digits

from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.environment import environment
from psflow.ps_runtime.model.export.directory import ExportDirectory
from tests.acceptance.conftest import wait_for
from tests.flows.conftest import TIMEOUT_SECS, Project
from tests.limits import HANG_SECS
from tests.s3_server import S3Server, running_s3

pytestmark = [pytest.mark.piece(number=6), pytest.mark.cluster, pytest.mark.timeout(600)]

AWAY_SECS = 30.0
EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM = """
import sys
from distributed import Client, LocalCluster
from digits_on_dask import eval_input_fn, train_input_fn
from psflow import Adam, DNNClassifier, EvalSpec, RunConfig, TrainSpec, train_and_evaluate

if __name__ == "__main__":
    estimator = DNNClassifier(
        [64], n_classes=10, optimizer=Adam(learning_rate=0.003), model_dir=sys.argv[1],
        config=RunConfig(tf_random_seed=7, save_checkpoints_steps=500),
    )
    train_spec = TrainSpec(train_input_fn, max_steps=int(sys.argv[2]))
    eval_spec = EvalSpec(eval_input_fn, steps=None, start_delay_secs=0, throttle_secs=0)
    with (
        LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None, security=True) as cluster,
        Client(cluster) as client,
    ):
        train_and_evaluate(estimator, train_spec, eval_spec, client=client, num_workers=1)
    print(estimator.evaluate(eval_input_fn)["global_step"])
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    switches = tmp_path / "switches"
    switches.mkdir()
    with running_s3(switches) as running, environment(running.environment):
        fsspec.filesystem("s3").clear_instance_cache()  # an earlier one has the address of an earlier server
        yield running


def start(folder: Path, model_dir: str, steps: int) -> subprocess.Popen[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, program, model_dir, str(steps)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES), "DASK_TEMPORARY_DIRECTORY": str(folder)},
    )


def test_a_killed_training_resumes_and_outlasts_a_store_that_is_away(server: S3Server, tmp_path: Path) -> None:
    model_dir = "s3://bucket/runs/digits"
    store = CheckpointStore(model_dir)

    def latest() -> int:
        return store.latest() or 0

    first = start(tmp_path, model_dir, 1_000_000)
    wait_for(lambda: latest() >= 1000, HANG_SECS, "a checkpoint")
    second = start(tmp_path, model_dir, 1_000_000)
    _, said = second.communicate(timeout=HANG_SECS)
    assert second.returncode != 0
    assert f"model_dir {model_dir} is in use by process {first.pid}" in said
    first.kill()
    first.communicate(timeout=HANG_SECS)

    saved = latest()
    last = saved + 20_000
    again = start(tmp_path, model_dir, last)
    wait_for(lambda: latest() > saved, HANG_SECS, "a checkpoint of the resumed training")
    with server.switched("away"):
        time.sleep(AWAY_SECS)
    out, said = again.communicate(timeout=2 * HANG_SECS)
    assert again.returncode == 0, said
    assert f"{model_dir} does not answer, trying again for 120 s" in said
    assert out.splitlines()[-1] == str(last)
    assert latest() == last


RUN = "s3://bucket/runs/digits"
CONF = """
experiment: digits
seed: 7
model:
  name: DNNClassifier
  params: {hidden_units: [32], n_classes: 10, optimizer: {name: Adam, learning_rate: 0.003}}
input:
  train: {format: csv, path: "s3://bucket/data/train.csv", label: digit, batch_size: 32, shuffle: true}
  eval: {format: csv, path: "s3://bucket/data/test.csv", label: digit, batch_size: 128}
best: {metric: accuracy, mode: max, exports_to_keep: 2}
cluster: {ps: 1, workers: 1}
model_dir: "s3://bucket/runs/digits"
"""


def write_digits(s3: Any) -> None:
    digits = load_digits()
    names = [f"p{number}" for number in range(64)]
    lines = [
        ",".join([*(f"{value:.0f}" for value in row), str(label)])
        for row, label in zip(digits.data, digits.target, strict=True)
    ]
    for name, part in (("train", lines[:1500]), ("test", lines[1500:])):
        s3.pipe_file(f"bucket/data/{name}.csv", "\n".join([",".join([*names, "digit"]), *part, ""]).encode())


def test_commands_train_evaluate_export_and_predict_with_all_files_on_s3(
    server: S3Server, served_project: Project
) -> None:
    project, s3 = served_project, fsspec.filesystem("s3")
    write_digits(s3)
    conf = project.write("digits.yaml", CONF)
    best = ExportDirectory(f"{RUN}/export/best")

    process = project.start("train", conf, "train.max_steps=1000000", "train.save_checkpoints_steps=100")
    wait_for(lambda: max(best.versions(), default=0) > 1, TIMEOUT_SECS, "exports")
    assert [job["model_dir"] for job in project.run("status", f"{RUN}/")["jobs"]] == [RUN]
    with server.switched("away"):
        time.sleep(AWAY_SECS)  # in which the input is read, too
    away = CheckpointStore(RUN).latest() or 0
    wait_for(lambda: (CheckpointStore(RUN).latest() or 0) > away, TIMEOUT_SECS, "a checkpoint once S3 is back")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=TIMEOUT_SECS)
    last = 100 * ((CheckpointStore(RUN).latest() or 0) // 100 + 3)
    trained = project.run("train", conf, f"train.max_steps={last}", "train.save_checkpoints_steps=100")
    assert trained["final_step"] == last
    assert trained["best"]["export_path"] == best.version_path(max(best.versions()))
    assert len(best.versions()) <= 2
    store = MlflowClient(f"sqlite:///{project.path}/mlflow.db")
    registered = store.search_model_versions("name = 'psflow-digits'")
    steps = [version.tags["psflow.step"] for version in registered]
    assert len(steps) == len(set(steps))

    again = project.run("train", f"{RUN}/config.yaml", f"train.max_steps={last + 100}")
    assert (again["final_step"], again["run_id"], again["model_dir"]) == (last + 100, trained["run_id"], RUN)

    replayed = project.run("evaluate", "--model-dir", RUN, "--checkpoints", "all", "--force")
    assert [row["step"] for row in replayed["results"]] == CheckpointStore(RUN).steps()
    assert replayed["failed"] == []

    chosen = project.run("export", "--model-dir", RUN, "--checkpoint", str(last))
    assert chosen["path"].startswith(f"{RUN}/export/")
    exported = project.run("export", "--model-dir", RUN, "--checkpoint", "best")
    assert (exported["step"], exported["alias"]) == (again["best"]["step"], "best")

    options = ["--input", "s3://bucket/data/test.csv", "--output", "s3://bucket/predicted"]
    predicted = project.run("predict", "--model", exported["path"], *options)
    assert (predicted["rows"], predicted["global_step"]) == (297, exported["step"])
    assert s3.exists("s3://bucket/predicted/_SUCCESS")
