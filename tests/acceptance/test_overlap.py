"""Runs that take longer than the time between two starts, a run that is killed, and a message about a failure."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL
from prefect.states import Failed, Running
from prefect.types._datetime import now

from psflow.flows.train import train_flow
from tests.acceptance.conftest import Served, wait_for
from tests.acceptance.test_schedule import log_of, owner
from tests.flows.conftest import ROOT

pytestmark = [pytest.mark.piece(number=1), pytest.mark.timeout(1800)]

MODEL = """
import time
from user_models import line, points

def slow_points(params):
    for batch in points(params):
        time.sleep(1.0)
        yield batch
"""
SLOW = """
experiment: slow
model: {name: "slow_points:line", params: {learning_rate: 0.1}}
input:
  train: {name: "slow_points:slow_points", params: {num_batches: %d}}
  eval: {name: "user_models:points", params: {num_batches: 3}}
train: {save_checkpoints_steps: 10}
cluster: {workers: 0}
model_dir: "runs/slow/{scheduled_time}"
schedule: {flow: train, cron: "* * * * *"}
"""
TRAINING_SECS, WATCHED_SECS = 90, 360
START_SECS = 200.0
NEXT = timedelta(seconds=60)
"""From the time at which a run is due to its begin."""
SKIPPED = re.compile(
    r"skipped: run 'train slow' \(([0-9a-f-]{36})\) "
    r"(?:has been running since .* UTC|ran from .* UTC until .* UTC, after this one was due); schedule\.overlap is skip"
)
PAGE = (ROOT / "docs" / "howto" / "schedule.md").read_text()


@pytest.fixture(scope="module")
def served(serve: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    place = tmp_path_factory.mktemp("conf")
    (place / "slow_points.py").write_text(MODEL)
    (place / "slow.yaml").write_text(SLOW % TRAINING_SECS)
    served = serve(f"{place}/slow.yaml")
    wait_for(lambda: "train/slow, on" in log_of(served), START_SECS, "psflow serve")
    return served


def due(served: Served) -> list[FlowRun]:
    """Return the runs that were due by now, in their order."""
    runs = [run for run in served.client.read_flow_runs(limit=200) if run.expected_start_time < now("UTC")]
    return sorted(runs, key=lambda run: run.expected_start_time)


def trained(runs: list[FlowRun]) -> list[FlowRun]:
    return [run for run in runs if run.start_time is not None and run.state_name != "Skipped"]


def test_of_a_training_that_takes_longer_than_a_minute_two_never_run_at_once(served: Served) -> None:
    first = wait_for(lambda: trained(due(served)), START_SECS, "a training")[0]
    until = first.start_time + timedelta(seconds=WATCHED_SECS)
    wait_for(lambda: now("UTC") > until, WATCHED_SECS + 60.0, "some minutes")
    runs = [run for run in due(served) if first.expected_start_time <= run.expected_start_time < now("UTC") - NEXT]
    skipped = [run for run in runs if run.state_name == "Skipped"]
    others = trained(runs)
    assert len(runs) >= WATCHED_SECS // 60 - 1
    assert len(skipped) + len(others) == len(runs), [(run.name, run.state_name) for run in runs]
    assert len(others) >= 2
    assert skipped
    for before, after in pairwise(others):
        assert before.end_time is not None
        assert before.end_time <= after.start_time
    for run in skipped:
        assert run.state is not None
        named = SKIPPED.fullmatch(run.state.message or "")
        assert named is not None, run.state.message
        assert named[1] in {str(other.id) for other in others}
        assert not (served.project.path / "runs" / "slow" / f"{run.expected_start_time:%Y%m%dT%H%M%SZ}").exists()


def test_after_a_run_was_killed_the_next_begins_when_it_is_due(served: Served) -> None:
    def holder() -> FlowRun | None:
        running = [run for run in trained(due(served)) if run.state_name == "Running"]
        return running[0] if running else None

    run = wait_for(holder, START_SECS, "a training")
    place = served.project.path / "runs" / "slow" / f"{run.expected_start_time:%Y%m%dT%H%M%SZ}"
    process = wait_for(lambda: owner(place), START_SECS, "its process")
    os.kill(process.pid, signal.SIGKILL)
    killed_at = now("UTC")

    def following() -> FlowRun | None:
        later = [run for run in trained(due(served)) if run.expected_start_time > killed_at]
        return later[0] if later else None

    after = wait_for(following, 2 * START_SECS, "the next training")
    assert after.expected_start_time - killed_at < timedelta(seconds=61)  # none was skipped
    assert after.start_time is not None
    assert after.start_time - after.expected_start_time < NEXT
    wait_for(lambda: served.state(run.id) == "CRASHED", START_SECS, "the killed run")


class Told(BaseHTTPRequestHandler):
    """Keeps what is posted to it."""

    lines: list[str]

    def do_POST(self) -> None:
        self.lines.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def hook() -> Iterator[tuple[str, list[str]]]:
    """Give the address of a webhook, and the lines that it has got."""
    lines: list[str] = []
    server = HTTPServer(("127.0.0.1", 0), type("Here", (Told,), {"lines": lines}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", lines
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_automation_of_the_page_tells_of_a_failure(served: Served, hook: tuple[str, list[str]]) -> None:
    url, lines = hook
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    api = {each.name: str(each.value()) for each in (PREFECT_API_URL, PREFECT_API_AUTH_STRING)}
    subprocess.run([sys.executable, "-c", program, "told", url], env={**os.environ, **api}, check=True)
    for tag in ("told", "others"):
        run = served.client.create_flow_run(train_flow, name=f"train {tag}", tags=["psflow", tag], state=Running())
        served.client.set_flow_run_state(run.id, Failed(message="no column 'age' in people.csv"))
    wait_for(lambda: lines, 60.0, "the webhook")
    assert lines == ["train told: Failed: no column 'age' in people.csv"]
