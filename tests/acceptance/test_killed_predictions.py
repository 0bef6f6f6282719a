"""A prediction whose processes are killed at any moment, and started again: each row is there exactly once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from benchmarks.predicting import export_network, write_records
from tests.flows.conftest import Project

pytestmark = [pytest.mark.piece(number=5), pytest.mark.timeout(1200), pytest.mark.cluster]

NUM_FILES, FILE_ROWS = 60, 40_000
NUM_KILLS = 5
TIMEOUT_SECS = 200.0


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, prefect_url: str) -> Project:
    """Return a project with a model, its input in many files, and its predictions, undisturbed."""
    place = tmp_path_factory.mktemp("killed")
    (place / "prefect").mkdir()
    project = Project(place, prefect_url=prefect_url)
    model, _ = export_network(place / "network")
    (place / "model").symlink_to(model)
    (place / "in").mkdir()
    for number in range(NUM_FILES):
        write_records(place / f"in/{number:02}.parquet", FILE_ROWS)
    predict(project, "expected").wait(TIMEOUT_SECS)
    assert (place / "expected/_SUCCESS").exists()
    return project


def predict(project: Project, output: str) -> subprocess.Popen[str]:
    arguments = ["--model", "model", "--input", "in", "--output", output, "format=parquet"]
    return project.start("predict", *arguments)


def num_parts(output: Path) -> int:
    return len(list(output.glob("_parts/part-*.json")))


def wait_for_parts(process: subprocess.Popen[str], output: Path, number: int) -> None:
    """Wait until so many parts are finished, or the process has ended; look often, to be near the moment."""
    deadline = time.monotonic() + TIMEOUT_SECS
    while num_parts(output) < number and process.poll() is None:
        assert time.monotonic() < deadline, "it does not go on"
        time.sleep(0.01)


def ended(process: subprocess.Popen[str]) -> None:
    _, told = process.communicate(timeout=TIMEOUT_SECS)
    assert process.returncode == 0, told


def agrees(place: Path, output: str) -> None:
    """Hold an output against the undisturbed one, row for row and part for part."""
    mine, expected = place / output, place / "expected"
    assert (mine / "_SUCCESS").exists()
    assert not list(mine.rglob("*.tmp"))
    assert pq.read_table(mine).equals(pq.read_table(expected))
    facts = [json.loads((folder / "_manifest.json").read_text()) for folder in (mine, expected)]
    assert facts[0]["rows"] == NUM_FILES * FILE_ROWS
    assert facts[0]["parts"] == facts[1]["parts"]


def test_a_flow_that_is_killed_goes_on_where_it_was(project: Project) -> None:
    output = project.path / "flow"
    moments = random.Random(3)
    for kill in range(NUM_KILLS):
        before = num_parts(output)
        share = (NUM_FILES - before) // (NUM_KILLS - kill + 1)  # of what is left: on a busy machine kills come late
        process = predict(project, "flow")
        wait_for_parts(process, output, before + moments.randint(1, max(1, share - 1)))
        time.sleep(moments.random() / 10)
        assert process.poll() is None, process.communicate()
        process.kill()
        process.communicate()
        assert not (output / "_SUCCESS").exists()
        assert before < num_parts(output) < NUM_FILES, f"kill {kill} came too late"
        noted = {path.stem for path in output.glob("_parts/*.json")}
        assert all(pq.read_metadata(output / f"{name}.parquet").num_rows == FILE_ROWS for name in noted)
    ended(predict(project, "flow"))
    agrees(project.path, "flow")


def test_a_worker_that_is_killed_leaves_nothing_out(project: Project) -> None:
    process = predict(project, "worker")
    wait_for_parts(process, project.path / "worker", 3)
    below = psutil.Process(process.pid).children(recursive=True)
    workers = [one for one in below if one.ppid() != process.pid and "forkserver" in " ".join(one.cmdline())]
    os.kill(workers[0].pid, signal.SIGKILL)
    ended(process)
    agrees(project.path, "worker")


def test_the_second_of_two_at_once_is_refused(project: Project) -> None:
    first = predict(project, "two")
    wait_for_parts(first, project.path / "two", 1)
    first.send_signal(signal.SIGSTOP)  # it is not to end before the second one looks
    try:
        second = predict(project, "two")
        _, told = second.communicate(timeout=TIMEOUT_SECS)
    finally:
        first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert "is being written by process" in told
    ended(first)
    agrees(project.path, "two")
