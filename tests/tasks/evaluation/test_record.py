from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord
from psflow.ps_runtime.errors import UsageError
from psflow.tasks.evaluation.replay import ReplayRecord

NOBODY = 65534


def evaluation(step: int = 300, name: str = "", loss: float = 0.5, digest: str = "abc") -> EvaluationRecord:
    return EvaluationRecord(name, step, 7.5, {"loss": loss}, 8.5, digest)


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Let nothing be written to `directory`: root is somebody else meanwhile, whom rights concern."""
    directory.chmod(0o555)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(NOBODY)
        yield
    finally:
        if is_root:
            os.seteuid(0)
        directory.chmod(0o755)


def test_an_evaluation_is_known_by_name_step_and_checkpoint(tmp_path: Path) -> None:
    EvaluationLog(str(tmp_path)).append(evaluation())
    record = ReplayRecord(str(tmp_path))
    assert record.find("", 300, 7.5) == evaluation()
    assert record.find("", 300, 7.6) is None  # another checkpoint of that step
    assert record.find("", 301, 7.5) is None
    assert record.find("other", 300, 7.5) is None


def test_what_is_written_is_in_the_file_once_unless_forced(tmp_path: Path) -> None:
    record = ReplayRecord(str(tmp_path))
    record.write(evaluation(), is_forced=False)
    record.write(evaluation(loss=0.25), is_forced=False)
    assert EvaluationLog(str(tmp_path)).read() == [evaluation()]
    record.write(evaluation(loss=0.25), is_forced=True)
    assert EvaluationLog(str(tmp_path)).read() == [evaluation(loss=0.25)]
    assert len((tmp_path / "evaluations.jsonl").read_text().splitlines()) == 2


def test_a_record_elsewhere_is_read_beside_that_of_the_model_dir(tmp_path: Path) -> None:
    model_dir, elsewhere = tmp_path / "model", tmp_path / "record"
    model_dir.mkdir()
    EvaluationLog(str(model_dir)).append(evaluation(300))
    ReplayRecord(str(model_dir), str(elsewhere)).write(evaluation(600), is_forced=False)
    record = ReplayRecord(str(model_dir), str(elsewhere))
    assert (record.find("", 300, 7.5), record.find("", 600, 7.5)) == (evaluation(300), evaluation(600))
    assert EvaluationLog(str(model_dir)).evaluated("") == {300}
    assert record.path == f"{elsewhere}/evaluations.jsonl"


@pytest.mark.parametrize("is_forced", [False, True])
def test_where_nothing_may_be_written_that_is_reported_once(
    is_forced: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = ReplayRecord(str(tmp_path))
    with read_only(tmp_path), caplog.at_level(logging.WARNING):
        record.write(evaluation(300), is_forced=is_forced)
        record.write(evaluation(600), is_forced=is_forced)
    assert not record.is_written
    [told] = caplog.messages
    assert told.startswith(f"{tmp_path} is not writable, so results are stored in MLflow only")
    assert "--record DIR" in told
    assert not list(tmp_path.iterdir())


def test_another_input_needs_another_name(tmp_path: Path) -> None:
    EvaluationLog(str(tmp_path)).append(evaluation(300, "held"))
    record = ReplayRecord(str(tmp_path))
    record.check_input("held", "abc", "evals.NAME")
    record.check_input("held", "", "evals.NAME")  # a stream: nothing can be known
    record.check_input("new", "def", "evals.NAME")
    words = (
        r"^evaluation 'held' has different data, batch size or eval\.steps than its recorded results "
        r"\(checkpoints 300\); rename it \(evals\.NAME\), or repeat all of them \(--force\)$"
    )
    with pytest.raises(UsageError, match=words):
        record.check_input("held", "def", "evals.NAME")
