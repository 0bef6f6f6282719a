"""A model_dir that hosts do not share, or that goes away: who finds it says so within seconds, and nobody waits."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from dask.utils import parse_timedelta
from distributed import Client

from psflow.ps_runtime.checkpoint.store import CheckpointStore
from tests.acceptance.conftest import wait_for
from tests.flows.conftest import TIMEOUT_SECS, Project
from tests.flows.interrupting import LINE, write_line
from tests.free_ports import free_address
from tests.other_host import OTHER_HOST, on_other_host

pytestmark = [pytest.mark.piece(number=6), pytest.mark.timeout(600)]

ENDLESS = LINE.replace("num_batches: 200", f"num_batches: {10**9}")
SHARED = "on a shared mount, or a URL such as s3://bucket/run"


@pytest.mark.parametrize("moved_to", ["elsewhere", "elsewhere, and a new directory is made"])
def test_a_training_whose_model_dir_is_moved_ends_and_goes_on_once_it_is_back(
    served_project: Project, moved_to: str
) -> None:
    project, conf = served_project, write_line(served_project, ENDLESS)
    run, moved = project.path / "runs" / "line", project.path / "moved"
    process = project.start("train", conf, "train.max_steps=10000000", "train.save_checkpoints_steps=1000")
    wait_for(lambda: len(list(run.glob("checkpoints/step_*/manifest.json"))) > 1, TIMEOUT_SECS, "a checkpoint")
    run.rename(moved)
    if "new" in moved_to:
        run.mkdir()
    began = time.monotonic()
    out, err = process.communicate(timeout=TIMEOUT_SECS)
    assert time.monotonic() - began < 60, err
    assert process.returncode == 1, err
    error = json.loads(out.splitlines()[-1])["error"]
    assert error["type"] in ("LostDirectoryError", "RoleFailedError")
    assert f"{run}: " in error["message"]
    assert "was removed or moved while process" in error["message"]
    assert "Traceback" not in err
    assert not run.exists() or list(run.iterdir()) == []
    assert (moved / "job.json").exists()

    shutil.rmtree(run, ignore_errors=True)
    moved.rename(run)
    step = CheckpointStore(str(run)).latest() or 0
    answer = project.run("train", conf, f"train.max_steps={step + 50}", "train.save_checkpoints_steps=1000")
    assert (answer["final_step"], answer["run_id"]) == (step + 50, json.loads((run / "job.json").read_text())["run_id"])

    (run / "job.json").unlink()
    _, said = project.heard("train", conf, f"train.max_steps={step + 60}", "train.save_checkpoints_steps=1000")
    assert f"the latest of step {step + 50}, but no job.json: a new job continues from there" in said


@contextmanager
def dask_cluster(directory: Path, workers: list[list[str]], **options: Any) -> Iterator[str]:
    """Run a Dask cluster, each worker after some words; give the address of its scheduler."""
    dask, file = str(Path(sys.executable).with_name("dask")), directory / "scheduler.json"
    common = ["--no-dashboard", "--scheduler-file", str(file)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": directory, **options}
    with ExitStack() as stack:

        def start(*words: str) -> None:
            process = stack.enter_context(subprocess.Popen(words, **quiet))
            stack.callback(process.kill)

        start(dask, "scheduler", "--host", "127.0.0.1", "--port", "0", *common)
        wait_for(lambda: file.exists() and file.stat().st_size, TIMEOUT_SECS, "a scheduler")
        for words in workers:
            start(*words, dask, "worker", "--nthreads", "1", "--no-nanny", "--nworkers", "1", *common)
        address = json.loads(file.read_text())["address"]
        with Client(address) as client:
            client.wait_for_workers(len(workers), timeout=parse_timedelta(f"{TIMEOUT_SECS}s"))
        yield address


@pytest.fixture
def hosts(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Dask cluster of three workers here, and one on a host that has ``runs`` and ``out`` for itself."""
    for name in ("runs", "out"):
        (project.path / name).mkdir()
    elsewhere = [*on_other_host(project.path / "runs"), *on_other_host(project.path / "out")]
    with dask_cluster(tmp_path_factory.mktemp("cluster"), [[], [], [], elsewhere], env=project.environment) as address:
        yield address


def test_a_training_on_hosts_that_do_not_share_its_model_dir_is_refused(project: Project, hosts: str) -> None:
    conf = write_line(project, ENDLESS)
    began = time.monotonic()
    answer, said = project.heard("train", conf, f"cluster.address={hosts}", "train.max_steps=10000000", exit_code=1)
    secs = time.monotonic() - began
    assert re.fullmatch(
        rf"\w+-0 failed: {project.path}/runs/line: process \d+ on {socket.gethostname()} works there, but \w+-0 on "
        rf"{OTHER_HOST} finds no job\.json; use a directory that all hosts see under this name, {SHARED}",
        answer["error"]["message"],
    )
    assert "Traceback" not in said
    assert secs < 60, said  # 8 of them the role looks for it; the rest are those of a command that starts a server


CHIEF = """
import psflow as tf

def rows():
    while True:
        yield {"x": 0.5}, 1.4

def input_fn():
    return tf.Dataset.from_generator(rows).batch(1)

def model_fn(features, labels, mode):
    w = tf.get_variable("w", initializer=0.0)
    update = tf.GradientDescent(0.1).apply_gradients({"w": w - 1})
    return tf.EstimatorSpec(mode, loss=(w - 1) ** 2, train_op=update)

config = tf.RunConfig("run", session_creation_timeout_secs=60)
train_spec, eval_spec = tf.TrainSpec(input_fn, max_steps=100), tf.EvalSpec(input_fn, 1)
tf.train_and_evaluate(tf.Estimator(model_fn, config=config), train_spec, eval_spec)
"""


def test_a_process_by_hand_that_does_not_see_the_model_dir_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(CHIEF)
    (tmp_path / "run").mkdir()
    chief, ps = free_address(), free_address()

    def start(role: str, *before: str) -> subprocess.Popen[str]:
        task = {"cluster": {"chief": [chief], "ps": [ps]}, "task": {"type": role, "index": 0}}
        words = [*before, sys.executable, "main.py"]
        environment = {**os.environ, "TF_CONFIG": json.dumps(task), "TMPDIR": str(tmp_path)}
        return subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)

    with ExitStack() as stack:
        before = on_other_host(tmp_path / "run")
        leading = stack.enter_context(start("chief"))
        stack.callback(leading.kill)
        pem = tmp_path / "run" / "tls" / "cluster.pem"
        wait_for(lambda: pem.exists() or leading.poll() is not None, TIMEOUT_SECS, "a chief")
        began = time.monotonic()
        joining = stack.enter_context(start("ps", *before))
        _, said = joining.communicate(timeout=TIMEOUT_SECS)
        secs = time.monotonic() - began
    assert joining.returncode == 1
    found = f"the chief at {chief} is there, but ps-0 on {OTHER_HOST} finds no certificate of it in tls/"
    assert f"{tmp_path}/run: {found}; use a directory that all hosts see under this name, {SHARED}" in said
    assert secs < 30, said  # 8 of them it looks for the certificate
