"""MLflow stopped for a minute while a job trains: it trains as fast, and no metric is missing afterwards."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tasks.tracking import prepare_store
from tests.mlflow_server import MlflowServer

AWAY_SECS = 60.0
BEFORE_SECS = 20.0
EVERY = 200
"""Steps between reports."""
SAVE_EVERY = 5000
MEASURED_STEPS = 3000
MIN_SHARE = 0.85
"""Of the speed before: medians of reports on a machine that other programs use as well."""
TIMEOUT_SECS = 600.0
CONF = Path(__file__).parents[2] / "conf" / "digits.yaml"

pytestmark = pytest.mark.timeout(2 * TIMEOUT_SECS)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MlflowServer]:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # prepare_store sets it; a test must not hand it to the next
    server = MlflowServer(prepare_store(f"sqlite:///{tmp_path}/mlflow.db"), tmp_path)
    server.start()
    yield server
    server.stop()


def train(folder: Path, url: str, max_steps: int) -> subprocess.Popen[str]:
    train = {"max_steps": max_steps, "log_step_count_steps": EVERY, "save_checkpoints_steps": SAVE_EVERY}
    settings = [f"train.{key}={value}" for key, value in train.items()]
    with open(folder / "train.log", "a") as log:
        return subprocess.Popen(
            [Path(sys.executable).with_name("psflow"), "train", CONF, *settings, "--json"],
            cwd=folder,
            env={**os.environ, "MLFLOW_TRACKING_URI": url, "PREFECT_HOME": str(folder / "prefect")},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def answer_of(process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    out, _ = process.communicate(timeout=TIMEOUT_SECS)
    assert process.returncode == 0, (folder / "train.log").read_text()
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


def test_training_does_not_notice(server: MlflowServer, tmp_path: Path) -> None:
    first = answer_of(train(tmp_path, server.url, MEASURED_STEPS), tmp_path)
    max_steps = MEASURED_STEPS + round(first["train"]["steps_per_sec"] * (BEFORE_SECS + AWAY_SECS + 40) / EVERY) * EVERY
    client = MlflowClient(server.url, server.url)
    process = train(tmp_path, server.url, max_steps)
    try:
        while client.get_metric_history(first["run_id"], "loss")[-1].step <= MEASURED_STEPS:
            assert process.poll() is None, (tmp_path / "train.log").read_text()
            time.sleep(1)
        time.sleep(BEFORE_SECS)
        server.stop()
        stopped_at = time.time()
        time.sleep(AWAY_SECS)
        assert process.poll() is None, "training ended before the server was back"
        back_at = time.time()
        server.start()
        answer = answer_of(process, tmp_path)
    finally:
        process.kill()

    run = client.get_run(answer["run_id"])
    assert (run.info.status, answer["final_step"]) == ("FINISHED", max_steps)
    for key in ("loss", "steps_per_sec"):
        steps = [point.step for point in client.get_metric_history(run.info.run_id, key)]
        assert [step // EVERY for step in steps] == list(range(1, max_steps // EVERY + 1)), key
    evaluated = {point.step for point in client.get_metric_history(run.info.run_id, "eval/accuracy")}
    assert evaluated >= set(answer["evaluated_steps"])
    rates = [
        (p.timestamp / 1000, p.value)
        for p in client.get_metric_history(run.info.run_id, "steps_per_sec")
        if p.step > MEASURED_STEPS
    ]
    before = statistics.median(rate for at, rate in rates if at < stopped_at)
    away = statistics.median(rate for at, rate in rates if stopped_at <= at < back_at)
    print(f"{before:.0f} steps/s before, {away:.0f} while MLflow was away")
    assert away >= MIN_SHARE * before
