"""A signal to a training on a Dask cluster that psflow did not start, and the same command after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from tests.acceptance.conftest import wait_for
from tests.flows.conftest import TIMEOUT_SECS, Project
from tests.flows.interrupting import LINE, interrupted, resumed_without_a_doubled_point, write_line

pytestmark = [pytest.mark.piece(number=5), pytest.mark.timeout(600)]


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
        while not (file.exists() and file.stat().st_size) and time.monotonic() < deadline:
            with pytest.raises(subprocess.TimeoutExpired):
                own.wait(0.1)
        yield json.loads(file.read_text())["address"]
    finally:
        for process in (*workers, own):
            process.kill()
            process.wait()


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


@pytest.mark.ci
def test_a_flow_that_is_killed_leaves_a_cluster_of_others_free_and_the_same_command_resumes(
    project: Project, scheduler: str
) -> None:
    conf = write_line(project, LINE.replace("num_batches: 200", f"num_batches: {10**9}"))
    address = f"cluster.address={scheduler}"
    process = project.start("train", conf, address, "train.max_steps=10000000", "train.save_checkpoints_steps=1000")
    wait_for(lambda: list(project.path.glob("runs/*/checkpoints/step_*")), TIMEOUT_SECS, "a checkpoint")
    process.kill()
    process.communicate()
    with Client(scheduler) as client:
        wait_for(lambda: not any(client.processing().values()), 120.0, "no role is left")
    resumed_without_a_doubled_point(project, conf, address)
