"""The file of metrics that MLflow has not taken: back as they were, and no damage is believed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.records import WaitingMetrics, read_waiting_metrics, write_waiting_metrics
from psflow.ps_runtime.errors import CheckpointError

LINE = {"run_id": "a", "step": 5, "time": 7.0, "values": {"loss": "inf"}}


def test_metrics_come_back_in_their_order(url: str) -> None:
    assert read_waiting_metrics(url) == []
    write_waiting_metrics(url, [WaitingMetrics("z", 9, 1.0, {})])
    waiting = [WaitingMetrics("b", 6, 8.0, {"loss": -math.inf, "auc": 0.5}), WaitingMetrics("a", 5, 7.0, {"loss": 1.0})]
    write_waiting_metrics(url, waiting)
    assert read_waiting_metrics(url) == waiting


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (LINE | {"step": "5"}, r"step: expected a whole number"),
        (LINE | {"time": "7"}, r"time: expected a finite number"),
        (LINE | {"values": {"loss": []}}, r"metrics\.loss: expected a number"),
        (LINE | {"values": []}, r"expected an object"),
        ({"step": 5}, r"metrics: expected run_id, step, time, values; got \['step'\]"),
        ([], r"metrics: expected an object, got \[\]"),
    ],
)
def test_a_damaged_line_is_told_with_its_number(tmp_path: Path, line: object, words: str) -> None:
    path = tmp_path / "waiting_metrics.jsonl"
    path.write_text(f"{json.dumps(LINE)}\n{json.dumps(line)}\n")
    with pytest.raises(CheckpointError, match=rf"{path}: line 2 is damaged: .*{words}.*; remove that line$"):
        read_waiting_metrics(str(tmp_path))


def test_a_torn_last_line_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "waiting_metrics.jsonl"
    path.write_text(f"{json.dumps(LINE)}\n{json.dumps(LINE)[:20]}")
    assert read_waiting_metrics(str(tmp_path)) == [WaitingMetrics("a", 5, 7.0, {"loss": math.inf})]
    assert caplog.messages == [f"{path}: the last line is incomplete; its metrics are lost"]
