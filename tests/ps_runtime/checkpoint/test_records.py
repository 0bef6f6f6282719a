from __future__ import annotations

import math

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.records import (
    EvaluationLog,
    EvaluationRecord,
    FinishedMarker,
    clear_finished,
    read_finished,
    write_finished,
)
from psflow.ps_runtime.errors import CheckpointError


def test_finished_comes_and_goes(url: str) -> None:
    assert read_finished(url) is None
    write_finished(url, 500, "max_steps")
    assert read_finished(url) == FinishedMarker(500, "max_steps")
    clear_finished(url)
    clear_finished(url)
    assert read_finished(url) is None


@pytest.mark.parametrize("text", [b"", b"{}", b'{"final_step": -1, "reason": ""}', b"\xff", b"[1]"])
def test_a_damaged_mark_is_an_error(url: str, text: bytes) -> None:
    FileStore(url).put("finished.json", text)
    with pytest.raises(CheckpointError, match=r"finished.json: damaged: .*; remove the file to continue training"):
        read_finished(url)


def test_evaluations_come_back_in_order(url: str) -> None:
    log = EvaluationLog(url)
    assert log.read() == []
    assert log.evaluated("eval") == set()
    first = EvaluationRecord("eval", 100, 0.5, {"loss": 0.25, "global_step": 100.0}, 1.5)
    log.append(first)
    log.append(EvaluationRecord("other", 200, 0.5, {"loss": np.float32(0.5)}, 2.5))  # type: ignore[dict-item]
    log.append(EvaluationRecord("eval", 300, 0.75, {"loss": math.inf, "auc": math.nan}, 3.5))
    read = EvaluationLog(url).read()
    assert read[:2] == [first, EvaluationRecord("other", 200, 0.5, {"loss": 0.5}, 2.5)]
    assert read[2].metrics["loss"] == math.inf
    assert math.isnan(read[2].metrics["auc"])
    assert log.evaluated("eval") == {100, 300}
    assert log.checkpoints("eval") == {100: 0.5, 300: 0.75}


def test_the_newest_line_of_a_step_counts(url: str) -> None:
    log = EvaluationLog(url)
    again = EvaluationRecord("eval", 1, 9.0, {"loss": 2.0}, 9.5)
    other = EvaluationRecord("other", 1, 1.0, {"loss": 3.0}, 1.5)
    for evaluation in (EvaluationRecord("eval", 1, 1.0, {"loss": 1.0}, 1.5), other, again):
        log.append(evaluation)
    assert log.read() == [other, again]
    assert log.checkpoints("eval") == {1: 9.0}


def test_a_torn_last_line_is_as_if_it_had_never_been(url: str) -> None:
    log = EvaluationLog(url)
    log.append(EvaluationRecord("eval", 1, 0.0, {"loss": 1.0}, 0.0))
    whole = FileStore(url).read("evaluations.jsonl")
    for length in range(len(whole)):
        FileStore(url).put("evaluations.jsonl", whole + whole[:length])
        assert len(log.read()) == 1
    log.append(EvaluationRecord("eval", 2, 0.0, {"loss": 1.0}, 0.0))
    assert [e.global_step for e in log.read()] == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"{}",
        b"3",
        b'{"name": "a", "global_step": 1, "checkpoint_saved_at": 1, "metrics": 3, "evaluated_at": 1}',
        b'{"name": "a", "global_step": 1, "checkpoint_saved_at": 1, "metrics": {}, "evaluated_at": Infinity}',
        b'{"name": "a", "global_step": 1, "checkpoint_saved_at": 1, "metrics": {}, "evaluated_at": 1e300}',
        b'{"name": "a", "global_step": 1, "checkpoint_saved_at": 1, "metrics": {"loss": "9"}, "evaluated_at": 1}',
        b'{"name": "a", "global_step": 1, "checkpoint_saved_at": 1, "metrics": {"loss": []}, "evaluated_at": 1}',
        b'{"name": 3, "global_step": 1, "checkpoint_saved_at": 1, "metrics": {}, "evaluated_at": 1}',
        b"\xff",
    ],
)
def test_a_damaged_line_is_named(url: str, line: bytes) -> None:
    log = EvaluationLog(url)
    log.append(EvaluationRecord("eval", 1, 0.0, {"loss": 1.0}, 0.0))
    FileStore(url).append("evaluations.jsonl", line + b"\n")
    with pytest.raises(CheckpointError, match=r"evaluations.jsonl: line 2 is damaged: .*; remove that line"):
        log.read()


def test_a_checkpoint_is_added_once_under_a_name(url: str) -> None:
    log = EvaluationLog(url)
    assert log.add(EvaluationRecord("eval", 1, 0.5, {"loss": 1.0}, 1.5))
    assert not EvaluationLog(url).add(EvaluationRecord("eval", 1, 0.5, {"loss": 2.0}, 2.5))
    assert log.add(EvaluationRecord("other", 1, 0.5, {"loss": 3.0}, 2.5))
    assert log.add(EvaluationRecord("eval", 1, 0.75, {"loss": 4.0}, 3.5))  # another checkpoint of that step
    assert [e.metrics["loss"] for e in log.read()] == [3.0, 4.0]


def test_lines_of_an_earlier_release_are_read(url: str) -> None:
    line = b'{"name": "", "global_step": 3, "checkpoint_saved_at": 0.5, "metrics": {"loss": 1}, "evaluated_at": 1.5}\n'
    FileStore(url).put("evaluations.jsonl", line)
    assert EvaluationLog(url).read() == [EvaluationRecord("", 3, 0.5, {"loss": 1.0}, 1.5)]
