"""What is kept for MLflow: of which run it is, and what becomes of damage."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.errors import CheckpointError
from psflow.ps_runtime.roles.events import Metrics
from psflow.tasks.tracking.waiting import keep_waiting, read_waiting

LINE = {"run_id": "a", "step": 5, "time": 7.0, "values": {"loss": "inf"}}


def test_metrics_of_another_run_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep_waiting(str(tmp_path), "a", [Metrics(5, {"loss": math.inf}, time=7.0)])
    [metrics] = read_waiting(str(tmp_path), "a")
    assert (metrics.step, metrics.values, metrics.time) == (5, {"loss": math.inf}, 7.0)
    assert not caplog.messages
    assert read_waiting(str(tmp_path), "b") == []
    assert caplog.messages == [f"metrics that wait in {tmp_path} belong to other MLflow runs: a"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (LINE | {"step": "5"}, r"step: expected a whole number"),
        (LINE | {"time": "7"}, r"time: expected a finite number"),
        (LINE | {"values": {"loss": []}}, r"metrics\.loss: expected a number"),
        (LINE | {"values": []}, r"expected an object"),
        ({"step": 5}, r"values"),
        ([], r"expected an object"),
    ],
)
def test_a_damaged_line_is_told_with_its_number(tmp_path: Path, line: object, words: str) -> None:
    path = tmp_path / "waiting_metrics.jsonl"
    path.write_text(f"{json.dumps(LINE)}\n{json.dumps(line)}\n")
    with pytest.raises(CheckpointError, match=rf"{path}: line 2 is damaged: .*{words}"):
        read_waiting(str(tmp_path), "a")


def test_a_torn_last_line_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "waiting_metrics.jsonl").write_text(f"{json.dumps(LINE)}\n{json.dumps(LINE)[:20]}")
    assert [metrics.step for metrics in read_waiting(str(tmp_path), "a")] == [5]
    assert "the last line has no end" in caplog.text


def test_what_cannot_be_removed_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(FileStore, "remove", refuse)
    keep_waiting(str(tmp_path), "a", [])
