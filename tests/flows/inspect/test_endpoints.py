"""Servers in the answers of plan and doctor."""

from __future__ import annotations

import socket

import pytest

from psflow.flows.inspect import endpoints
from psflow.flows.inspect.endpoints import mlflow_endpoint


def test_an_mlflow_that_never_answers_is_waited_for_once_and_said_to_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "ANSWER_SECS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system takes connections for it
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        fault = mlflow_endpoint("some_run").fault
    assert fault == (
        f"the MLflow server {uri} did not answer within 0.2 s: it accepts connections, but hangs; restart it, or "
        "correct MLFLOW_TRACKING_URI"
    )
