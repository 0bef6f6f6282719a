"""The writer against MLflow's own server."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.tracking import Tracker, prepare_store

pytestmark = pytest.mark.cluster


@pytest.fixture
def server(store: str, tmp_path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--workers", "1"]
    command += ["--artifacts-destination", str(tmp_path / "served"), "--host", "127.0.0.1", "--port", str(port)]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with open(tmp_path / "server.log", "w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not answers(port):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)  # it ends only if it fails
            is_coming_up = process.poll() is None and time.monotonic() < deadline
            assert is_coming_up, (tmp_path / "server.log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_run_of_a_job(server: str, exported: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def track(run_id: str | None) -> Tracker:
        tracker = Tracker.open(
            prepare_store(server), experiment="e", run_name="r", run_id=run_id, registered_model="psflow-e"
        )
        tracker.handle({"kind": "metrics", "role": "chief-0", "number": 1, "step": 10, "values": {"loss": 0.5}})
        tracker.handle({"kind": "checkpoint", "step": 10, "path": "/c"})
        tracker.handle({"kind": "evaluation", "step": 10, "name": None, "metrics": {"loss": 0.4}})
        export = {"kind": "export", "exporter": "best", "step": 10, "version": "1", "path": str(exported)}
        tracker.handle(export | {"metrics": {"loss": 0.4}, "best": True})
        assert tracker.close(timeout_secs=60), tracker.statistics()
        return tracker

    first = track(None)
    again = track(first.run_id)
    client = MlflowClient(server, server)
    run = client.get_run(first.run_id)
    assert run.info.status == "FINISHED"
    assert len(client.get_metric_history(first.run_id, "loss")) == 1
    assert len(client.get_metric_history(first.run_id, "eval/loss")) == 1
    assert len(client.search_logged_models([run.info.experiment_id])) == 2
    assert [v.version for v in client.search_model_versions("name = 'psflow-e'")] == ["1"]
    assert again.best == first.best is not None
    assert first.page == f"{server}/#/experiments/{run.info.experiment_id}/runs/{first.run_id}"
    assert first.page in client.get_model_version("psflow-e", "1").description
    assert capfd.readouterr() == ("", "")
