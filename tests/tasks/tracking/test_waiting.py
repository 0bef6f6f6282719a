"""What is kept for MLflow: of which run it is, and what becomes of failures."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.roles.events import Metrics
from psflow.tasks.tracking.writes import Waiting, keep_waiting, read_waiting


def test_metrics_of_another_run_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting([Metrics(5, {"loss": math.inf}, time=7.0)], {"tag": "x"}, {"plots/roc.png": b"\x89png"})
    keep_waiting(str(tmp_path), "a", waiting)
    assert read_waiting(str(tmp_path), "a") == waiting
    assert not caplog.messages
    assert read_waiting(str(tmp_path), "b") == Waiting([])
    assert caplog.messages == [f"what waits in {tmp_path} belongs to other MLflow runs: a"]
    keep_waiting(str(tmp_path), "a", Waiting())
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_removed_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(FileStore, "remove", refuse)
    keep_waiting(str(tmp_path), "a", Waiting())
