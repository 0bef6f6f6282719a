"""A firewall between two hosts forgets a connection of the chief to a ps: training goes on within a minute."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.store import CheckpointStore
from tests.acceptance.conftest import wait_for
from tests.network_namespaces import Host, forget, two_hosts, why_no_hosts

MIGRATED = Path(__file__).parents[2] / "examples" / "migrated"
PSFLOW = str(Path(sys.executable).with_name("psflow"))
READY_SECS = 180.0
KNOWN_SECS = 60.0

PROGRAM = """
import time
import psflow as tf
from model import MyEstimator

def rows():
    while True:
        time.sleep(0.02)
        yield {"x": 0.5}, 1.4

def input_fn():
    return tf.Dataset.from_generator(rows).batch(1)

if __name__ == "__main__":
    config = tf.RunConfig("model", save_checkpoints_steps=100)
    eval_spec = tf.EvalSpec(input_fn, steps=1, start_delay_secs=0, throttle_secs=3600)
    tf.train_and_evaluate(MyEstimator("model", config), tf.TrainSpec(input_fn, max_steps=10**8), eval_spec)
"""
"""It saves every two or three seconds, and never ends."""

pytestmark = [pytest.mark.piece(number=7), pytest.mark.measured]


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    if why_not := why_no_hosts():
        pytest.skip(why_not)
    with two_hosts() as hosts:
        yield hosts


@pytest.fixture
def chief(hosts: tuple[Host, Host], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The chief of a job that trains, on the first host with the evaluator; the ps is on the second one."""
    (tmp_path / "main.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(MIGRATED)}
    here, there = hosts
    flags = ["--ps_hosts", f"{there.address}:2222", "--worker_hosts", f"{here.address}:2222"]
    processes = []
    for host, role in ((there, "ps"), (here, "evaluator"), (here, "worker")):
        command = host.command(PSFLOW, "role", *flags, "--job_name", role, "--task_index", "0", "main.py")
        with open(tmp_path / f"{role}.log", "wb") as log:
            processes.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log))
    yield processes[-1]
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("which", ["saver", "training"])
def test_training_goes_on_within_a_minute(
    hosts: tuple[Host, Host], chief: subprocess.Popen[bytes], tmp_path: Path, which: str
) -> None:
    store = CheckpointStore(str(tmp_path / "model"))
    log = tmp_path / "worker.log"
    wait_for(lambda: len(store.steps()) > 1 or chief.poll() is not None, READY_SECS, "two checkpoints")
    assert chief.poll() is None, log.read_text()
    ports = hosts[0].ports_to(hosts[1], chief.pid)
    choose = min if which == "saver" else max  # who saves sends something every few seconds, who trains at each step
    forget(hosts, choose(ports, key=lambda port: ports[port]))
    forgotten_at = time.monotonic()
    newest = store.steps()[-1]

    def goes_on() -> bool:
        assert chief.poll() is None, log.read_text()
        return store.steps()[-1] >= newest + 300  # one or two may have been under way

    wait_for(goes_on, 2 * KNOWN_SECS, "three more checkpoints")
    stood_secs = time.monotonic() - forgotten_at
    print(f"the connection for {which} was lost; three checkpoints later after {stood_secs:.0f} s")
    assert stood_secs > 30.0, "the firewall has forgotten another connection"
    assert stood_secs < KNOWN_SECS + 15.0  # in which checkpoints are made
