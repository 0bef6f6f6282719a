"""The mark of an owner, as the processes that work for it look for it."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint import owner_mark
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.owner_mark import OwnerMark, job_mark
from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.errors import CheckpointError, LostDirectoryError, StoppedError

HOST = os.uname().nodename
NOBODY = 65534


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIND_SECS", "CONFIRM_SECS", "POLL_SECS"):
        monkeypatch.setattr(owner_mark, name, 0.0)


@pytest.fixture
def job(url: str) -> JobFile:
    made = JobFile(url)
    made.claim()
    return made


@pytest.fixture
def mark(url: str, job: JobFile) -> OwnerMark:
    record = job.read()
    assert record is not None
    assert record.owner is not None
    return job_mark(url, record.owner, "ps-0", never_stop)


def test_the_claim_of_the_owner_is_the_mark(mark: OwnerMark, job: JobFile) -> None:
    mark.find()
    job.renew()
    job.update(attempts=3)
    mark.confirm()
    fenced: list[str] = []
    mark.after(lambda: fenced.append("asked"))()
    assert fenced == ["asked"]


def test_a_host_that_does_not_see_it_is_named_with_that_of_the_owner(mark: OwnerMark, job: JobFile, url: str) -> None:
    job._files.remove("job.json")
    shown = url if "://" in url else os.path.abspath(url)
    words = f"{shown}: {mark.owner.process} works there, but ps-0 on {HOST} finds no job.json; use a directory that all"
    with pytest.raises(LostDirectoryError) as told:
        mark.find()
    assert str(told.value) == f"{words} hosts see under this name, on a shared mount, or a URL such as s3://bucket/run"
    with pytest.raises(LostDirectoryError, match=r"removed or moved while process \d+ on .* finds no job\.json, and"):
        mark.confirm()


def test_a_copy_that_another_host_has_is_not_it(mark: OwnerMark, job: JobFile, url: str) -> None:
    JobFile(url, clock=lambda: time.time() + 60).claim()  # of the same job, once its lease is over
    with pytest.raises(LostDirectoryError, match=rf"finds the job\.json of process {os.getpid()} on {HOST}; use a"):
        mark.find()
    record = json.loads(job._files.read("job.json"))
    job._files.put("job.json", json.dumps(record | {"owner": None}).encode())
    with pytest.raises(LostDirectoryError, match=r"finds the job\.json of a job without an owner; use a directory"):
        mark.find()


def test_a_file_that_comes_late_is_waited_for(
    mark: OwnerMark, job: JobFile, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner_mark, "FIND_SECS", 600.0)
    whole = job._files.read("job.json")
    states = iter([None, b"", whole[:40], whole])

    def next_state() -> None:
        state = next(states)
        job._files.remove("job.json") if state is None else job._files.put("job.json", state)

    next_state()
    replace(mark, check=next_state).find()
    assert list(states) == []


def test_who_is_to_end_does_not_wait(mark: OwnerMark, job: JobFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_mark, "FIND_SECS", 600.0)
    job._files.remove("job.json")

    def stop() -> None:
        raise StoppedError("ps-0", "its Dask task was cancelled")

    with pytest.raises(StoppedError):
        replace(mark, check=stop).find()


def test_a_lost_mark_explains_what_is_wrong_with_a_file(mark: OwnerMark, job: JobFile) -> None:
    def fail() -> None:
        with mark.explaining():
            raise CheckpointError("step_00000005", "the file is missing")

    with pytest.raises(CheckpointError, match="the file is missing"):
        fail()
    job._files.remove("job.json")
    with pytest.raises(LostDirectoryError) as told:
        fail()
    assert told.value.__context__ is None


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user may enter, as those of tmp_path are not."""
    directory = Path(tempfile.mkdtemp(prefix="psflow-test-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def _as_nobody(call: Callable[[], None], said: Any) -> None:
    os.setuid(NOBODY)
    try:
        call()
    except LostDirectoryError as refusal:
        said.put(str(refusal))
    else:
        said.put("nothing")


@pytest.mark.process
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("closed", ["the file", "the directory"])
def test_what_another_user_may_not_read_is_told_apart_from_what_is_not_there(
    open_directory: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    monkeypatch.setattr(owner_mark, "FIND_SECS", 600.0)  # which no right to read is waited for
    monkeypatch.setattr(owner_mark, "CONFIRM_SECS", 600.0)
    run = open_directory / "run"
    record = JobFile(str(run)).claim()
    run.chmod(0o700 if closed == "the directory" else 0o755)
    assert record.owner is not None
    mark = job_mark(str(run), record.owner, "ps-0", never_stop)
    what = run if closed == "the directory" else run / "job.json"
    finds = f"ps-0 on {HOST} finds {what}, which belongs to user root, and may not read it as user nobody"
    fork = multiprocessing.get_context("fork")
    for call, words in ((mark.find, f" works there, but {finds}; "), (mark.confirm, f": {finds}, and writes nothing")):
        said = fork.Queue()
        process = fork.Process(target=_as_nobody, args=(call, said))
        process.start()
        told = said.get(timeout=200)
        process.join(timeout=200)
        assert words in told
        assert told.endswith("; start the processes of all roles, such as Dask workers, as user root")
