"""Artifacts of a flow run: content, frequency, and an unavailable server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from psflow.flows.reporting import artifacts as module
from psflow.flows.reporting.artifacts import Artifacts
from tests.limits import HANG_SECS


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Prefect was asked for."""
    sent: list[Any] = []

    def take(name: str) -> Callable[..., str]:
        return lambda *given: sent.append((name, *given)) or "id"

    for name in (
        "create_link_artifact",
        "create_markdown_artifact",
        "create_progress_artifact",
        "create_table_artifact",
    ):
        monkeypatch.setattr(module, name, take(name.split("_")[1]))
    monkeypatch.setattr(module, "update_progress_artifact", take("update"))
    return sent


def test_links_tables_and_progress(sent: list[Any]) -> None:
    artifacts = Artifacts("Digits_2.x")
    artifacts.link("mlflow-run", "http://host/r", "the MLflow run")
    artifacts.progress(50.0, "step 1")
    artifacts.progress(100.0, "step 2")
    artifacts.table("evaluations", [{"step": step} for step in range(1000)])
    artifacts.table("empty", [])
    artifacts.text("report", "# done")
    artifacts.close()
    artifacts.close()
    link, table = [call for call in sent if call[0] in ("link", "table")]
    assert ("markdown", "# done", "digits-2-x-report", None) in sent
    assert link == ("link", "http://host/r", "the MLflow run", "digits-2-x-mlflow-run", None)
    assert table[1][0] == {"step": 500}
    begun, *updates = [call for call in sent if call[0] in ("progress", "update")]
    assert begun[2] == "digits-2-x-progress"
    assert (updates or [begun])[-1][-1] == "step 2"


def test_progress_is_sent_seldom_and_the_last_one_surely(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first = threading.Event()
    monkeypatch.setattr(module, "create_progress_artifact", lambda *given: sent.append(("progress", *given)) or "id")
    artifacts = Artifacts("e")
    artifacts.progress(1.0, "step 1")
    artifacts.link("wakes", "u", "t")  # begins a round
    while len(sent) < 2:
        first.wait(0.01)
    for step in range(2, 100):
        artifacts.progress(float(step), f"step {step}")
        artifacts.link("wakes", "u", "t")
    artifacts.close()
    assert [call for call in sent if call[0] == "update"] == [("update", "id", 99.0, "step 99")]


def test_a_server_that_is_away_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*given: Any) -> None:
        raise ConnectionError("http://bob:s3cret@host refused")

    monkeypatch.setattr(module, "create_link_artifact", refuse)
    monkeypatch.setattr(module, "create_progress_artifact", refuse)
    artifacts = Artifacts("e")
    artifacts.progress(1.0, "step 1")
    for _ in range(3):
        artifacts.link("mlflow-run", "u", "t")
    artifacts.close()
    assert [record.getMessage() for record in caplog.records] == [
        "could not write artifacts to Prefect: http://host refused"
    ]


def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(module, "create_link_artifact", lambda *given: answer.wait(HANG_SECS))
    artifacts = Artifacts("e")
    artifacts.link("mlflow-run", "u", "t")
    artifacts.close(timeout_secs=0.05)
    answer.set()
    artifacts.close()
