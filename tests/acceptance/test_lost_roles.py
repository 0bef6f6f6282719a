"""Trainings whose roles are killed, also where a Dask worker comes back at the address that it had."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psutil
import pytest
from distributed import Client
from mlflow import MlflowClient

from psflow import TrainSpec
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import Event, FirstStep, RoleLost
from psflow.ps_runtime.specs.roles import RoleId
from tests.acceptance.conftest import wait_for
from tests.flows.conftest import Project
from tests.flows.interrupting import metric_points
from tests.free_ports import free_port
from tests.ps_runtime.cluster.test_training import endless, estimator

pytestmark = [pytest.mark.piece(number=4), pytest.mark.timeout(400), pytest.mark.cluster]

TIMEOUT_SECS = 200.0

MODEL = """
import os, pathlib, time
import numpy as np
from psflow import Dataset, EstimatorSpec, GradientDescent, get_variable

calls = []

def slope(features, labels, mode, config):
    pathlib.Path("pids", f"{config.task_type}-{config.task_id}").write_text(str(os.getpid()))
    if config.task_type == "chief" and config.num_ps_replicas:
        calls.append(mode)
        while len(calls) > 1 and not pathlib.Path("go").exists():  # the first call builds the model
            time.sleep(0.01)
    w = get_variable("w", initializer=0.0)
    if mode == "infer":
        return EstimatorSpec(mode, predictions={"y": w * features["x"]})
    error = w * features["x"] - labels
    time.sleep(0.01)
    train_op = GradientDescent(0.01).apply_gradients({"w": 2 * np.mean(error * features["x"])})
    return EstimatorSpec(mode, loss=np.mean(error**2), train_op=train_op)

def points():
    x = np.linspace(-1, 1, 100, dtype=np.float32)
    return Dataset({"x": x}, 2 * x)

def held_out():
    return points().batch(10)

def endless():
    return points().shuffle(100, seed=1).batch(10).repeat()
"""
CONF = """
experiment: slope
model: {name: "slope_model:slope"}
input:
  train: {name: "slope_model:endless"}
  eval: {name: "slope_model:held_out"}
train: {max_steps: 4000, save_checkpoints_steps: 500, log_step_count_steps: 10}
eval: {start_delay_secs: 0, throttle_secs: 0}
cluster: {workers: 2, step_deadline: {min_secs: 120}}  # no busy machine is to lose a worker
"""


def is_in(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


def pid_of_ps(directory: Path, flow: int) -> int | None:
    """Return the only process of the cluster of a flow that calls no model_fn.

    None while one of the other roles has not called it in its present life. A role writes its file at each step, so
    that a file may be empty at times.
    """
    others = {int(path.read_text() or -1) for path in directory.glob("*-[0-9]")}
    if not all(map(psutil.pid_exists, others)):
        return None
    below = psutil.Process(flow).children(recursive=True)
    workers = {one.pid for one in below if one.ppid() != flow and "forkserver" in " ".join(one.cmdline())}
    left = workers - others
    return left.pop() if len(left) == 1 else None


def newest_point(project: Path) -> int:
    """Return the last step of all metrics in MLflow."""
    with closing(sqlite3.connect(project / "mlflow.db")) as database:
        [(step,)] = database.execute("select max(step) from metrics").fetchall()
    return int(step)


def newest_checkpoint(run: Path) -> int:
    return max(int(file.parent.name.removeprefix("step_")) for file in run.glob("checkpoints/*/manifest.json"))


def kill(pids: Path, role: str) -> None:
    """Kill the process that is a role, once it has called model_fn."""
    path = pids / role
    pid = wait_for(lambda: path.exists() and path.read_text(), TIMEOUT_SECS, f"a first batch of {role}")
    process = psutil.Process(int(pid))
    process.kill()
    process.wait(TIMEOUT_SECS)


@pytest.mark.ci
def test_killed_roles_are_retries_of_their_task_runs_and_no_point_stands_twice(
    project: Project, tmp_path: Path
) -> None:
    project.write("slope_model.py", MODEL)
    (tmp_path / "pids").mkdir()
    process = project.start("train", project.write("slope.yaml", CONF))
    run, pids, go = tmp_path / "runs/slope", tmp_path / "pids", tmp_path / "go"
    wait_for(lambda: is_in(run / "evaluations.jsonl", '"global_step": 0,'), TIMEOUT_SECS, "an evaluation")
    kill(pids, "evaluator-0")
    kill(pids, "worker-0")
    go.touch()
    wait_for((run / "checkpoints/step_00001500/manifest.json").exists, TIMEOUT_SECS, "the checkpoint of step 1500")
    go.unlink()  # so that training does not come to its end before all are killed
    kill(pids, "chief-0")
    ps = wait_for(lambda: pid_of_ps(pids, process.pid), TIMEOUT_SECS, "all roles but the ps to work again")
    # the ticket of the chief keeps the others from a further checkpoint
    wait_for(lambda: newest_point(tmp_path) > newest_checkpoint(run), TIMEOUT_SECS, "a point of a step to lose")
    os.kill(ps, signal.SIGKILL)
    go.touch()
    out, said = process.communicate(timeout=TIMEOUT_SECS)
    assert process.returncode == 0, said
    assert said.count("was lost and restarts: its Dask worker tls://") == 4, said
    assert said.count("no step is lost") == 3
    assert said.count("all roles roll back to the last checkpoint") == 1
    [(step, reached)] = re.findall(r"training continues from step (\d+); steps \d+-(\d+) are lost and repeated", said)
    num_lost = int(reached) - int(step)
    assert f"restarts 4, lost steps {num_lost}" in said
    facts = json.loads(out)
    assert facts["final_step"] == 4000
    with sqlite3.connect(tmp_path / "prefect/prefect.db") as database:
        counts = dict(database.execute("select name, run_count from task_run").fetchall())
    assert counts == {"ps-0": 2, "chief-0": 3, "worker-0": 3, "worker-1": 2, "evaluator-0": 2}
    curves = metric_points(project, facts["run_id"])
    assert curves["eval/loss"] == list(range(0, 4001, 500))
    assert all(sorted(set(steps)) == steps for steps in curves.values())
    data = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").get_run(facts["run_id"]).data
    assert (data.metrics["restarts"], data.metrics["lost_steps"]) == (4, num_lost)
    assert data.tags["psflow.lost_steps"] == f"{int(step) + 1}-{reached}"


@contextmanager
def dask_process(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``dask`` for the time of a block, with its scratch files in a directory."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_dask_worker_that_returns_at_its_address_runs_no_past_life(tmp_path: Path) -> None:
    scheduler_port, *worker_ports = (free_port() for _ in range(4))
    address = f"tcp://127.0.0.1:{scheduler_port}"
    common = ["--no-dashboard", "--host", "127.0.0.1"]
    of_worker = ["--no-nanny", "--nthreads", "1", *common]
    role = RoleId.parse("worker-0")
    events: list[Event] = []

    def worker(port: int) -> list[str]:
        return ["worker", address, "--worker-port", str(port), *of_worker]

    with ExitStack() as stack:
        stack.enter_context(dask_process(tmp_path, "scheduler", "--port", str(scheduler_port), *common))
        processes = {port: stack.enter_context(dask_process(tmp_path, *worker(port))) for port in worker_ports}
        client = stack.enter_context(Client(address, timeout=TIMEOUT_SECS))
        client.wait_for_workers(3, timeout=TIMEOUT_SECS)
        attempt = stack.enter_context(
            Attempt(estimator(tmp_path / "job"), TrainSpec(endless, 10**8), None, num_workers=1)
        )
        run = stack.enter_context(ClusterJob(client, attempt.job(), events.append))
        run.start(AdmissionPolicy(120))
        slot = run._supervisor.slots()[role]
        port = int(slot.rpartition(":")[2])
        processes[port].kill()
        processes[port].wait()
        stack.enter_context(dask_process(tmp_path, *worker(port)))
        deadline = time.monotonic() + TIMEOUT_SECS

        def first_steps() -> list[int]:
            return [e.incarnation for e in events if isinstance(e, FirstStep) and e.role == str(role)]

        def check() -> None:
            assert time.monotonic() < deadline, events
            losses = [event for event in events if isinstance(event, RoleLost)]
            if losses and losses[0].incarnation + 1 in first_steps():
                raise InterruptedError

        with pytest.raises(InterruptedError):
            run.join(check)
        assert run._supervisor.slots()[role] == slot
        assert len([event for event in events if isinstance(event, RoleLost)]) == 1
