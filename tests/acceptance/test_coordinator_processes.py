"""The distribute coordinator with a process for each task: by TF_CONFIG, and what Ctrl-C does to any of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from psflow.ps_runtime.checkpoint.records import EvaluationLog, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from tests.free_ports import free_address

pytestmark = pytest.mark.piece(number=2)

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "coordinator.py")
TIMEOUT_SECS = 240.0
KINDS = ("chief", "worker", "ps", "evaluator")

PROGRAM = """
import logging
import sys
import numpy as np
import psflow as tf

def model_fn(features, labels, mode):
    w = tf.get_variable("w", initializer=0.0)
    loss = ((labels - w * features) ** 2).mean()
    train_op = tf.GradientDescent(0.1).minimize(loss, global_step=tf.get_or_create_global_step())
    return tf.EstimatorSpec(mode, loss=loss, train_op=train_op)

def rows():
    x = np.linspace(-1, 1, 100, dtype=np.float32)
    return tf.Dataset(x, 3 * x).repeat().batch(10)

def worker_fn(strategy):
    estimator = tf.Estimator(model_fn, config=tf.RunConfig(save_checkpoints_steps=20))
    eval_spec = tf.EvalSpec(rows, steps=5, start_delay_secs=0, throttle_secs=0)
    tf.train_and_evaluate(estimator, tf.TrainSpec(rows), eval_spec)

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    tf.run_distribute_coordinator(worker_fn, tf.ParameterServerStrategy(), mode=sys.argv[1])
"""

Start = Callable[..., subprocess.Popen[bytes]]


def free_cluster() -> dict[str, list[str]]:
    """Return an address on this machine for a task of each kind."""
    return {kind: [free_address()] for kind in KINDS}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return what starts a process of its own group, which takes SIGINT as in a terminal; kill what is left."""
    started: list[subprocess.Popen[bytes]] = []
    for name in ("t", "logs"):  # short, as is the name of each test: the path of a socket has 107 characters at most
        (tmp_path / name).mkdir()
    (tmp_path / "main.py").write_text(PROGRAM)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def run(name: str, tf_config: object, *command: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "TMPDIR": str(tmp_path / "t"), "TF_CONFIG": json.dumps(tf_config)}
        with open(tmp_path / "logs" / name, "wb") as log:
            started.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    cwd=tmp_path,
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return started[-1]

    yield run
    signal.signal(signal.SIGINT, before)
    for process in started:
        process.kill()
        process.wait()


def said(tmp_path: Path) -> dict[str, str]:
    """Return what each process has written."""
    return {log.name: log.read_text() for log in (tmp_path / "logs").iterdir()}


def latest_step(tmp_path: Path) -> int:
    return CheckpointStore(str(tmp_path / "model")).latest() or 0


def await_checkpoint(model_dir: Path, process: subprocess.Popen[bytes], step: int, logs: Path) -> None:
    """Wait until training has come as far as `step`."""
    deadline = time.monotonic() + TIMEOUT_SECS
    while (CheckpointStore(str(model_dir)).latest() or 0) < step:
        assert time.monotonic() < deadline, said(logs)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)


def check_nothing_left(tmp_path: Path, *processes: subprocess.Popen[bytes]) -> None:
    groups = {process.pid for process in processes}
    others = [one for one in psutil.process_iter() if group_of(one) in groups]
    _, left = psutil.wait_procs(others, timeout=120)  # they end as soon as they see that the client is gone
    assert left == []
    assert list((tmp_path / "t").iterdir()) == []
    assert not (tmp_path / "model" / "tls").exists()


def group_of(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def tf_configs(tmp_path: Path) -> dict[str, object]:
    """Return the TF_CONFIG of each task of a cluster."""
    common = {"cluster": free_cluster(), "model_dir": str(tmp_path / "model")}
    return {kind: {**common, "task": {"type": kind, "index": 0}} for kind in KINDS}


def test_each_process_is_the_task_that_tf_config_names(start: Start, tmp_path: Path) -> None:
    command = (EXAMPLE, "--independent", "--model-dir", str(tmp_path / "model"))
    processes = {kind: start(kind, config, *command) for kind, config in tf_configs(tmp_path).items()}
    codes = {kind: process.wait(TIMEOUT_SECS) for kind, process in processes.items()}
    logs = said(tmp_path)
    assert codes == dict.fromkeys(KINDS, 0), logs
    for kind, is_chief in (("chief", True), ("worker", False), ("evaluator", True)):
        assert f"{kind} 0 of 2 workers, is_chief={is_chief}\n" in logs[kind]
    assert "w = 3.000\n" in logs["chief"]
    finished = read_finished(str(tmp_path / "model"))
    assert finished is not None
    assert finished.final_step == 300
    assert EvaluationLog(str(tmp_path / "model")).read()[-1].global_step == 300
    check_nothing_left(tmp_path, *processes.values())


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["client", "terminal"])
def test_ctrl_c_at_a_client_ends_all_and_at_one_of_its_tasks_nothing(
    send: Callable[[int, int], None], start: Start, tmp_path: Path
) -> None:
    config = {"cluster": free_cluster(), "model_dir": str(tmp_path / "model"), "task": {"type": "client"}}
    client = start("client", config, "main.py", "standalone_client")
    await_checkpoint(tmp_path / "model", client, 20, tmp_path)
    for task in psutil.Process(client.pid).children(recursive=True):
        task.send_signal(signal.SIGINT)
    await_checkpoint(tmp_path / "model", client, latest_step(tmp_path) + 100, tmp_path)
    send(client.pid, signal.SIGINT)
    assert client.wait(120) == -signal.SIGINT, said(tmp_path)
    check_nothing_left(tmp_path, client)
    assert read_finished(str(tmp_path / "model")) is None


def test_ctrl_c_at_a_worker_lets_the_others_train_on_and_at_the_chief_it_ends_all(start: Start, tmp_path: Path) -> None:
    configs = tf_configs(tmp_path)
    command = ("main.py", "independent_worker")
    processes = {kind: start(kind, config, *command) for kind, config in configs.items()}
    model_dir, chief = tmp_path / "model", processes["chief"]
    await_checkpoint(model_dir, chief, 20, tmp_path)
    processes["worker"].send_signal(signal.SIGINT)
    assert processes["worker"].wait(120) == -signal.SIGINT, said(tmp_path)
    await_checkpoint(model_dir, chief, latest_step(tmp_path) + 100, tmp_path)
    chief.send_signal(signal.SIGINT)
    codes = {kind: process.wait(120) for kind, process in processes.items()}
    logs = said(tmp_path)
    assert codes == {"chief": -signal.SIGINT, "worker": -signal.SIGINT, "ps": 1, "evaluator": 1}, logs
    assert "worker-0 is lost: its Dask worker" in logs["chief"]
    for kind in ("ps", "evaluator"):
        assert "ended the job: it was interrupted (SIGINT)" in logs[kind]
    check_nothing_left(tmp_path, *processes.values())
