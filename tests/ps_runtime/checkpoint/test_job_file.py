from __future__ import annotations

import functools
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint.job_file import JobFile, JobRecord, Owner
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.errors import CheckpointError, LostDirectoryError, ModelDirError, StorageError, UsageError


@pytest.fixture
def job(url: str, clock: Any) -> JobFile:
    return JobFile(url, clock=clock)


def own(job: JobFile, process: ProcessId, lease_expires: float) -> JobRecord:
    """Make `process` the owner of a job, as if it had claimed it."""
    record = JobRecord("j1", run_id="r1", owner=Owner(process, "theirs", 900_000.0), lease_expires=lease_expires)
    job._files.put("job.json", record.to_json().encode())
    return record


def test_a_new_model_dir_gets_a_new_job(job: JobFile, clock: Any) -> None:
    assert job.read() is None
    record = job.claim()
    assert re.fullmatch(r"[0-9a-f]{16}", record.job_id)
    assert record.run_id is None
    assert record.lease_expires == clock.now + 30
    assert job.read() == record
    assert job.claim() == record


def test_what_the_owner_notes_is_there_after_its_end(job: JobFile, url: str, clock: Any) -> None:
    first = job.claim()
    job.update(run_id="r1", dataset="digits")
    job.update(last_step=40)
    clock.now += 10
    assert job.renew().lease_expires == clock.now + 30
    job.release()
    job.release()
    again = JobFile(url, clock=clock).claim()
    assert (again.job_id, again.run_id) == (first.job_id, "r1")
    assert again.facts == {"dataset": "digits", "last_step": 40}


def test_a_running_job_is_scaled_within_its_limits_until_its_next_attempt(job: JobFile, url: str, clock: Any) -> None:
    job.claim()
    other = JobFile(url, clock=clock)
    with pytest.raises(UsageError, match=r"^no job on a cluster runs in "):
        other.want_workers(1)
    job.update(workers={"least": 1, "most": 3, "wanted": None})
    for number in (0, 4):
        with pytest.raises(UsageError, match=rf"^the job in \S+ may have 1 to 3 workers, got {number}$"):
            other.want_workers(number)
    other.want_workers(2)
    assert job.renew().facts["workers"] == {"least": 1, "most": 3, "wanted": 2}
    job.release()
    with pytest.raises(UsageError, match=r"^no job on a cluster runs in "):
        other.want_workers(3)


def test_where_there_is_no_job_nothing_is_made_by_who_scales_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^no job on a cluster runs in "):
        JobFile(str(tmp_path / "none")).want_workers(1)
    assert list(tmp_path.iterdir()) == []


def test_a_second_owner_in_the_same_process_waits_for_the_lease(job: JobFile, url: str, clock: Any) -> None:
    job.claim()
    second = JobFile(url, clock=clock)
    with pytest.raises(
        ModelDirError,
        match=rf"model_dir {re.escape(url)} is in use by process {os.getpid()} on .* since 1970-01-12 13:46:40 UTC "
        r"\(lease until 1970-01-12 13:47:10 UTC\); that is this process: end the session or training",
    ):
        second.claim()
    clock.now += 30
    second.claim()
    for call in (job.renew, job.update):
        with pytest.raises(
            ModelDirError,
            match=r"no longer owns model_dir .*: process \d+ on .* has owned it since .*; wait for its end, then",
        ):
            call()
    job.release()
    assert second.renew().owner is not None


def test_who_could_not_claim_has_lost_nothing(job: JobFile, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise StorageError("job.json", "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(job._files, "change", fail)
        with pytest.raises(StorageError):
            job.claim()
    assert job.claim().owner is not None


def test_the_job_of_a_process_that_lives_is_refused_whatever_its_lease_says(job: JobFile) -> None:
    parent = replace(ProcessId.current(), pid=os.getppid(), started=_start_of(os.getppid()))
    own(job, parent, lease_expires=0.0)
    with pytest.raises(ModelDirError, match=f"in use by process {os.getppid()} .*; wait for it to end, stop"):
        job.claim()


def test_the_job_of_a_dead_process_is_resumed_at_once(job: JobFile, clock: Any) -> None:
    later = replace(ProcessId.current(), pid=os.getppid(), started=_start_of(os.getppid()) + 1)
    record = own(job, later, lease_expires=clock.now + 1000)
    claimed = job.claim()
    assert (claimed.job_id, claimed.run_id) == (record.job_id, record.run_id)


def test_of_another_host_the_lease_decides(job: JobFile, clock: Any) -> None:
    own(job, ProcessId("elsewhere", "another boot", 1, 1), lease_expires=clock.now + 1)
    with pytest.raises(ModelDirError, match="in use by process 1 on elsewhere"):
        job.claim()
    clock.now += 1
    assert job.claim().job_id == "j1"


def test_who_owns_nothing_can_note_nothing(job: JobFile) -> None:
    with pytest.raises(LostDirectoryError, match=r"model: its job\.json is gone: .* while process \d+ on .* trains"):
        job.update(run_id="r2")
    job.release()
    assert job.read() is None
    job.claim()
    job.release()
    with pytest.raises(
        ModelDirError,
        match=r"this process no longer owns model_dir .*: its job\.json names no owner, so another training has ended "
        r"there, or the file was replaced; run the same command again to resume",
    ):
        job.update(run_id="r2")


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "job_id": "x", "owner": 3}', b"\xff", b"[" * 100_000]
)
def test_a_damaged_file_is_an_error(job: JobFile, text: bytes) -> None:
    job._files.put("job.json", text)
    with pytest.raises(
        CheckpointError, match=r"job.json: damaged: .*; correct it, or remove it to start a new job here"
    ):
        job.claim()


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("job_id",), 3, "job.job_id: expected a text, got 3"),
        (("run_id",), [], r"job.run_id: expected a text, got \[\]"),
        (("lease_expires",), "soon", "job.lease_expires: expected a finite number, got 'soon'"),
        (("lease_expires",), 1e300, "job.lease_expires: expected Unix time"),
        (("facts",), [], r"job.facts: expected an object, got \[\]"),
        (("facts", "attempts"), "2", "job.facts.attempts: expected a whole number >= 0, got '2'"),
        (("facts", "seed"), None, "job.facts.seed: expected a whole number >= 0, got None"),
        (("facts", "ended_step"), 1.5, "job.facts.ended_step: expected a whole number >= 0, got 1.5"),
        (("facts", "forked_from"), {"step": 3}, "job.facts.forked_from: expected job_id, model_dir, run_id too"),
        (("facts", "forked_from"), "here", "job.facts.forked_from: expected an object, got 'here'"),
        (("owner", "process", "pid"), True, "job.owner.process.pid: expected a whole number >= 0, got True"),
        (("owner", "process"), {"pid": 1}, r"job.owner.process: expected host, boot, pid, started; got \['pid'\]"),
        (("owner", "since"), None, "job.owner.since: expected a finite number, got None"),
    ],
)
def test_a_wrong_type_is_named_with_its_key(job: JobFile, place: tuple[str, ...], value: Any, words: str) -> None:
    job.claim()
    facts = json.loads(job.claim().to_json())
    *above, key = place
    functools.reduce(lambda found, name: found[name], above, facts)[key] = value
    job._files.put("job.json", json.dumps(facts).encode())
    with pytest.raises(CheckpointError, match=rf"job.json: damaged: {words}"):
        job.read()


def test_only_the_file_and_its_lock_are_left(tmp_path: Any) -> None:
    job = JobFile(str(tmp_path))
    job.claim()
    job.renew()
    job.release()
    assert sorted(os.listdir(tmp_path)) == [".job.lock", "job.json"]


def _claim_at_once(model_dirs: list[str], barrier: Any, outcomes: Any) -> None:
    jobs = []
    for model_dir in model_dirs:
        job = JobFile(model_dir)
        barrier.wait()
        try:
            outcomes.put((model_dir, job.claim().job_id))
        except ModelDirError:
            outcomes.put((model_dir, None))
        jobs.append(job)
    barrier.wait()  # none ends, and so leaves its jobs, before all have tried


@pytest.mark.process
def test_of_two_processes_that_claim_at_once_exactly_one_wins(tmp_path: Any) -> None:
    model_dirs = [str(tmp_path / str(i)) for i in range(20)]
    fork = multiprocessing.get_context("fork")
    barrier, outcomes = fork.Barrier(2, timeout=200), fork.Queue()
    processes = [fork.Process(target=_claim_at_once, args=(model_dirs, barrier, outcomes)) for _ in range(2)]
    for process in processes:
        process.start()
    found: dict[str, list[str | None]] = {model_dir: [] for model_dir in model_dirs}
    for _ in range(2 * len(model_dirs)):
        model_dir, job_id = outcomes.get(timeout=200)
        found[model_dir].append(job_id)
    for process in processes:
        process.join(timeout=200)
    for model_dir, job_ids in found.items():
        (winner,) = [job_id for job_id in job_ids if job_id is not None]
        resumed = JobFile(model_dir).claim()
        assert resumed.job_id == winner, "both processes are dead by now"


def _training(tmp_path: Path, name: str = "digits") -> Path:
    job = JobFile(str(tmp_path / name))
    job.claim()
    job.release()
    return tmp_path / name


def test_a_copy_of_a_model_dir_is_refused_while_the_original_is_there(tmp_path: Path) -> None:
    original, copy = _training(tmp_path), tmp_path / "cut"
    shutil.copytree(original, copy)
    with pytest.raises(
        ModelDirError,
        match=rf"model_dir {copy} is a copy of {original}, but both would write into one MLflow run; "
        r"train the original, or a fork of it \(--fork DIR\)",
    ):
        JobFile(str(copy)).claim()
    assert JobFile(str(copy)).copied_from() == str(original)
    assert JobFile(str(original)).copied_from() is None
    JobFile(str(original)).claim()


@pytest.mark.parametrize("left", ["nothing", "another job", "damaged"])
def test_a_model_dir_that_was_moved_is_gone_on_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: str
) -> None:
    original, here = _training(tmp_path), tmp_path / "moved"
    job_id = JobFile(str(original)).claim().job_id
    original.rename(here)
    if left == "another job":
        _training(tmp_path)
    elif left == "damaged":
        original.mkdir()
        (original / "job.json").write_text("{")
    record = JobFile(str(here), clock=lambda: time.time() + 60).claim()
    assert (record.job_id, record.model_dir) == (job_id, str(here))
    assert caplog.messages == [f"the job was moved from {original} to {here}"]


def test_another_name_of_the_same_model_dir_is_no_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    original = _training(tmp_path)
    (tmp_path / "link").symlink_to(original)
    JobFile(str(tmp_path / "link")).claim()
    assert caplog.messages == []


@pytest.mark.process
def test_a_zombie_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    identity = replace(ProcessId.current(), pid=process.pid, started=_start_of(process.pid))
    assert identity.is_alive() is True
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identity.is_alive() is False
    process.wait()
    assert identity.is_alive() is False


def test_without_proc_the_lease_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    me = ProcessId.current()
    assert me.is_alive() is True
    monkeypatch.setattr("psflow.ps_runtime.checkpoint.process.boot_id", lambda: "")
    monkeypatch.setattr("psflow.ps_runtime.checkpoint.process.Path", lambda path: Path("/nowhere" + path))
    assert ProcessId.current().is_alive() is None
    assert me.is_alive() is None


def _start_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_the_place_of_a_model_dir_is_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert JobFile("runs/a").claim().model_dir == str(tmp_path / "runs" / "a")
    assert JobFile("memory://runs/a").claim().model_dir == "memory://runs/a"
