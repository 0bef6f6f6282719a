from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.job_file import JobFile, JobRecord, Owner
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.tasks.owners import JOB_ID, KIND, MODEL_DIR, OWNER, is_orphaned, owner_text

ME = ProcessId.current()
ELSEWHERE = ProcessId("elsewhere", "another boot", 1, 1)


def text(process: ProcessId) -> str:
    return json.dumps(asdict(process))


def test_a_run_of_this_process_is_not_orphaned() -> None:
    assert not is_orphaned({OWNER: owner_text()})


def test_a_run_of_an_earlier_process_of_the_same_pid_is() -> None:
    assert is_orphaned({OWNER: text(replace(ME, started=ME.started + 1))})


@pytest.mark.parametrize("notes", [{}, {OWNER: "{"}, {OWNER: "[]"}, {OWNER: '{"pid": 1}'}, {OWNER: text(ELSEWHERE)}])
def test_what_cannot_be_judged_is_left_alone(notes: dict[str, object]) -> None:
    assert not is_orphaned(notes)


@pytest.mark.parametrize(("expires_in", "is_over"), [(1000, False), (-1, True)])
def test_of_another_host_the_lease_of_the_job_decides(tmp_path: Path, expires_in: float, is_over: bool) -> None:
    now = time.time()
    record = JobRecord("j1", owner=Owner(ELSEWHERE, "t", 0.0), lease_expires=now + expires_in)
    (tmp_path / "job.json").write_text(record.to_json())
    notes: dict[str, object] = {OWNER: text(ELSEWHERE), MODEL_DIR: str(tmp_path), JOB_ID: "j1"}
    assert is_orphaned(notes) is is_over
    assert not is_orphaned(notes | {JOB_ID: "another"})
    assert not is_orphaned(notes | {KIND: "evaluate"})  # it never owned the job


def test_a_job_that_was_taken_over_shows_that_its_owner_elsewhere_is_gone(tmp_path: Path) -> None:
    record = JobFile(str(tmp_path)).claim()
    notes: dict[str, object] = {OWNER: text(ELSEWHERE), MODEL_DIR: str(tmp_path), JOB_ID: record.job_id}
    assert is_orphaned(notes)
    (tmp_path / "job.json").write_text("{")
    assert not is_orphaned(notes)
