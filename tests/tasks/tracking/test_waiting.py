"""Pending writes for MLflow: their run, and failures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.roles.events import Metrics
from psflow.tasks.tracking.writes import PendingWrites, keep_pending, read_pending


def test_metrics_of_another_run_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    waiting = PendingWrites([Metrics(5, {"loss": math.inf}, time=7.0)], {"tag": "x"}, {"plots/roc.png": b"\x89png"})
    keep_pending(str(tmp_path), "a", waiting)
    assert read_pending(str(tmp_path), "a") == waiting
    assert not caplog.messages
    assert read_pending(str(tmp_path), "b") == PendingWrites([])
    assert caplog.messages == [f"pending writes in {tmp_path} belong to other MLflow runs: a"]
    keep_pending(str(tmp_path), "a", PendingWrites())
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_removed_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(FileStore, "remove", refuse)
    keep_pending(str(tmp_path), "a", PendingWrites())
