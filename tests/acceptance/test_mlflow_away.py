"""MLflow stopped for a minute while a job trains: it trains as fast, and no metric is missing afterwards."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric

from psflow.tasks.tracking.store import prepare_store
from tests.mlflow_server import MlflowServer

AWAY_SECS = 60.0
BEFORE_SECS = 20.0
EVERY = 200
"""Steps between reports."""
MIN_SHARE = 0.85
"""Of the speed before, in medians of reports: other programs use the machine, too. Who waited would stand still."""
WAIT_SECS = 300.0
CONF = Path(__file__).parents[2] / "conf" / "digits.yaml"
SETTINGS = {"max_steps": 10**9, "log_step_count_steps": EVERY, "save_checkpoints_steps": 5000}

pytestmark = [pytest.mark.piece(number=8), pytest.mark.timeout(3 * WAIT_SECS), pytest.mark.measured]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MlflowServer]:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # prepare_store sets it; a test must not hand it to the next
    server = MlflowServer(prepare_store(f"sqlite:///{tmp_path}/mlflow.db"), tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def training(server: MlflowServer, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Train without end, in a directory of its own."""
    settings = [f"train.{key}={value}" for key, value in SETTINGS.items()]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": server.url, "PREFECT_HOME": str(tmp_path / "prefect")}
    with open(tmp_path / "train.log", "w") as log:
        command = [str(Path(sys.executable).with_name("psflow")), "train", str(CONF), *settings]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    yield process
    process.kill()
    process.wait()


def points(client: MlflowClient, key: str) -> list[Metric]:
    experiment = client.get_experiment_by_name("digits")
    runs = [] if experiment is None else client.search_runs([experiment.experiment_id])
    return client.get_metric_history(runs[0].info.run_id, key) if runs else []


def await_point_after(client: MlflowClient, at: float, training: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + WAIT_SECS
    while not any(point.timestamp / 1000 > at for point in points(client, "loss")[-1:]):
        assert training.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(1)


def test_training_does_not_notice(server: MlflowServer, training: subprocess.Popen[bytes], tmp_path: Path) -> None:
    client = MlflowClient(server.url, server.url)
    await_point_after(client, 0.0, training, tmp_path / "train.log")
    time.sleep(BEFORE_SECS)
    server.stop()
    stopped_at = time.time()
    time.sleep(AWAY_SECS)
    back_at = time.time()
    server.start()
    await_point_after(client, time.time(), training, tmp_path / "train.log")
    training.send_signal(signal.SIGINT)
    assert training.wait(WAIT_SECS) == 128 + signal.SIGINT

    for key in ("loss", "steps_per_sec"):
        reports = [point.step // EVERY for point in points(client, key)]
        assert reports == list(range(1, len(reports) + 1)), key
    rates = [(point.timestamp / 1000, point.value) for point in points(client, "steps_per_sec")]
    before = statistics.median(rate for at, rate in rates if at < stopped_at)
    away = statistics.median(rate for at, rate in rates if stopped_at <= at < back_at)
    print(f"{before:.0f} steps/s before, {away:.0f} while MLflow was away, {len(rates)} reports")
    assert away >= MIN_SHARE * before
