"""The Prefect server of a command is killed while it trains: the command ends well, and Prefect has all of its run."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import wait_for
from tests.acceptance.test_lost_roles import CONF, MODEL
from tests.flows.conftest import Project

READY_SECS = 150.0
END_SECS = 200.0
SAID = "the Prefect server of this command was killed by SIGKILL; restarting it"

pytestmark = [pytest.mark.piece(number=4), pytest.mark.ci, pytest.mark.timeout(600), pytest.mark.cluster]


@pytest.fixture
def training(project: Project) -> Iterator[subprocess.Popen[str]]:
    """Train until a file ``go`` is there, and some seconds more; give the command once there is a checkpoint."""
    project.write("slope_model.py", MODEL)
    (project.path / "pids").mkdir()
    process = project.start("train", project.write("slope.yaml", CONF), "cluster.workers=1", "train.max_steps=1000")
    checkpoints = project.path / "runs" / "slope" / "checkpoints"
    wait_for(lambda: process.poll() is not None or [*checkpoints.glob("*/manifest.json")], READY_SECS, "a checkpoint")
    yield process
    with suppress(psutil.NoSuchProcess):
        for left in psutil.Process(process.pid).children(recursive=True):
            left.kill()
    process.kill()
    process.communicate()


def server_of(process: subprocess.Popen[str]) -> psutil.Process | None:
    """Return the Prefect server that a command has for itself, unless it is away."""
    for child in psutil.Process(process.pid).children():
        with suppress(psutil.NoSuchProcess):  # it ends just now
            if "prefect_server/process.py" in " ".join(child.cmdline()):
                return child
    return None


def states(home: Path) -> list[tuple[str, str]]:
    """Return the name and the state of each task run, and of the flow run, in the database of a Prefect server."""
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        flow_runs = [("flow", state) for (state,) in database.execute("select state_type from flow_run")]
        return sorted([*flow_runs, *database.execute("select name, state_type from task_run")])


def test_a_killed_server_costs_the_run_nothing(project: Project, training: subprocess.Popen[str]) -> None:
    killed = wait_for(lambda: server_of(training), READY_SECS, "a server")
    [address] = [connection.laddr for connection in killed.net_connections() if connection.status == "LISTEN"]
    killed.kill()
    wait_for(lambda: not killed.is_running(), READY_SECS, "the end of the server")
    again = wait_for(lambda: server_of(training), READY_SECS, "the next server")
    listening = [connection.laddr for connection in again.net_connections() if connection.status == "LISTEN"]
    assert listening in ([address], [])  # it may be just starting

    (project.path / "go").touch()
    answer, said = training.communicate(timeout=END_SECS)

    assert training.returncode == 0, said
    assert json.loads(answer.splitlines()[-1])["final_step"] == 1000
    assert said.count(SAID) == 1, said
    assert "Traceback" not in said, said
    roles = ("chief-0", "evaluator-0", "ps-0", "worker-0")
    assert states(project.path / "prefect") == sorted([("flow", "COMPLETED"), *((role, "COMPLETED") for role in roles)])
    assert not again.is_running()
