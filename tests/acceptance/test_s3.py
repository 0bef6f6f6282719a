"""A program that trains on a Dask cluster with its checkpoints on S3: killed, resumed, and while S3 is away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.environment import environment
from tests.acceptance.conftest import wait_for
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
