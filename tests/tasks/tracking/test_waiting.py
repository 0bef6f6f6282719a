"""What is kept for MLflow: of which run it is, and what becomes of failures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.roles.events import Metrics
from psflow.tasks.tracking.waiting import keep_waiting, read_waiting


def test_metrics_of_another_run_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep_waiting(str(tmp_path), "a", [Metrics(5, {"loss": math.inf}, time=7.0)])
    [metrics] = read_waiting(str(tmp_path), "a")
    assert (metrics.step, metrics.values, metrics.time) == (5, {"loss": math.inf}, 7.0)
    assert not caplog.messages
    assert read_waiting(str(tmp_path), "b") == []
    assert caplog.messages == [f"metrics that wait in {tmp_path} belong to other MLflow runs: a"]


def test_what_cannot_be_removed_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(FileStore, "remove", refuse)
    keep_waiting(str(tmp_path), "a", [])
