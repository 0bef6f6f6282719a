"""A model_dir on S3, in moto's server: owners, checkpoints, and a store that is away, careless, or not there."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import fsspec
import pytest

from psflow.ps_runtime import store_calls
from psflow.ps_runtime.checkpoint import remote_calls
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.job_file import JobFile, JobRecord, Owner
from psflow.ps_runtime.checkpoint.owner_mark import job_mark
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.environment import environment
from psflow.ps_runtime.data.files import read_file
from psflow.ps_runtime.errors import InputError, LostDirectoryError, ModelDirError, StoreError, UsageError
from psflow.ps_runtime.tabular_files.files import check_unchanged, open_file, read_bytes
from psflow.ps_runtime.tabular_files.listing import list_files
from tests.free_ports import free_port
from tests.limits import HANG_SECS
from tests.s3_server import S3Server, running_s3

pytestmark = pytest.mark.process(shared=True)

NUM_CLAIMS = 6


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as running, environment(running.environment):
        yield running
    fsspec.filesystem("s3").clear_instance_cache()


@pytest.fixture
def run(server: S3Server) -> str:
    return f"s3://bucket/runs/{uuid.uuid4().hex}"


def test_of_several_owners_at_once_one_gets_the_job(run: str) -> None:
    jobs = [JobFile(run) for _ in range(NUM_CLAIMS)]
    together = threading.Barrier(NUM_CLAIMS)

    def claim(job: JobFile) -> str:
        together.wait(HANG_SECS)
        try:
            job.claim()
        except ModelDirError as error:
            return str(error)
        return "owner"

    for _ in range(3):
        with ThreadPoolExecutor(NUM_CLAIMS) as threads:
            got = list(threads.map(claim, jobs))
        assert got.count("owner") == 1
        assert all(f"model_dir {run} is in use by process" in one for one in got if one != "owner")
        jobs[got.index("owner")].release()


def test_an_owner_whose_lease_ran_out_writes_nothing_over_the_next_one(run: str, clock: Any) -> None:
    first = JobFile(run, clock=clock)
    record = first.claim()
    assert record.owner is not None
    store = CheckpointStore(run, fence=job_mark(run, record.owner, "ps-0", lambda: None).confirm)
    clock.now += 30
    there = JobFile(run, clock=clock).claim()
    for write in (first.renew, lambda: first.update(run_id="mine")):
        with pytest.raises(ModelDirError, match="no longer owns"):
            write()
    first.release()
    assert first.read() == there
    with pytest.raises(LostDirectoryError, match="was replaced while"):
        store.files.put("checkpoints/step_00000001/manifest.json", b"{}")
    assert store.steps() == []


def test_a_change_between_reading_and_writing_is_seen(run: str) -> None:
    files = FileStore(run)
    files.put("before", b"")
    other = fsspec.filesystem("s3", skip_instance_cache=True)
    seen = []

    def change(content: bytes | None) -> bytes:
        if not seen:  # another host writes at this moment
            files.names("")  # which the library keeps
            other.pipe_file(files.path("n"), b"theirs")
        seen.append(content)
        return b"mine" if content is None else content + b", then mine"

    files.change("n", "", change)
    assert seen == [None, b"theirs"]
    assert files.read("n") == b"theirs, then mine"


def test_evaluations_of_several_processes_are_all_kept(run: str) -> None:
    def add(step: int) -> None:
        EvaluationLog(run).append(EvaluationRecord("", step, 1.0, {"loss": 0.5}, 2.0))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(8)))
    assert sorted(one.global_step for one in EvaluationLog(run).read()) == list(range(8))


def test_checkpoints_are_written_pinned_read_and_collected(run: str, toy: Any) -> None:
    store = CheckpointStore(run)
    for step in (1, 2, 3):
        toy.save(store, step)
    unfinished = store.files.path("checkpoints/step_00000009/shard_00000_of_00001.safetensors")
    store.files.fs.pipe_file(unfinished, b"half")
    other = CheckpointStore(run)
    assert other.steps() == [1, 2, 3]
    with CheckpointReader.pinned(other, 1, "evaluator") as reader:
        assert store.collect_garbage(1, 1e9, store.clock()) == [2]
        [kernel] = [one for one in toy.model.variables if one.name == "kernel"]
        assert (reader.variable("kernel") == toy.expected(1, kernel)).all()
    assert store.collect_garbage(1, 1e9, store.clock()) == [1]
    assert store.discard_uncommitted() == [9]
    assert other.steps() == [3]
    assert store.files.names("checkpoints") == ["step_00000003"]
    assert store.path(3) == f"{run}/checkpoints/step_00000003"


def test_a_store_without_conditional_writes_is_refused(server: S3Server, run: str) -> None:
    remote_calls._conditional.clear()
    with server.switched("careless"), pytest.raises(UsageError, match=r"^s3://bucket/runs/.*: the store ignores cond"):
        JobFile(run).claim()


def test_a_store_that_is_away_is_asked_again(server: S3Server, run: str, caplog: pytest.LogCaptureFixture) -> None:
    files = FileStore(run)
    files.put("a", b"1")
    with server.switched("away"), ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(files.read, "a")
        while "does not answer, trying again for 120 s" not in caplog.text:
            assert not waiting.done()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store_calls, "ANSWER_SECS", 0.0)
            with pytest.raises(StoreError, match=r"did not answer, though asked again for 0 s: .*; check its endpoint"):
                files.put("a", b"2")
        server.folder.joinpath("away").rename(server.folder / "back")
        assert waiting.result(HANG_SECS) == b"1"
        (server.folder / "back").rename(server.folder / "away")


def test_errors_name_the_cause_and_the_remedy(server: S3Server, run: str) -> None:
    files = FileStore(run)
    with server.switched("forbidden"), pytest.raises(StoreError, match=r"refused .*; check the credentials, such as"):
        files.read("a")
    with pytest.raises(StoreError, match=r"^s3://missing/run: .*bucket does not exist; create the bucket, or correct"):
        JobFile("s3://missing/run").claim()
    assert "missing" not in files.fs.ls("", refresh=True)
    with pytest.raises(UsageError, match=r"^http://h/run: one process at a time may write there, .*; use s3://, or a"):
        FileStore("http://h/run").change("n", "", lambda content: b"")
    with pytest.raises(UsageError, match=r"^gs://b/run: the package .* is missing .*; install it for all processes"):
        FileStore("gs://b/run")


def test_of_a_dead_owner_elsewhere_the_lease_decides(run: str, clock: Any) -> None:
    owner = Owner(ProcessId("elsewhere", "another boot", 1, 1), "theirs", 0.0)
    record = JobRecord("j1", owner=owner, lease_expires=clock.now + 1)
    FileStore(run).put("job.json", replace(record, model_dir=run).to_json().encode())
    with pytest.raises(ModelDirError, match="in use by process 1 on elsewhere"):
        JobFile(run, clock=clock).claim()
    clock.now += 1
    assert JobFile(run, clock=clock).claim().job_id == "j1"


def test_input_that_is_away_is_read_once_it_is_back(
    server: S3Server, run: str, caplog: pytest.LogCaptureFixture
) -> None:
    files, content = FileStore(run), b"abcdefghij"
    files.put("a.csv", content)
    [file] = list_files(f"{run}/*.csv", [".csv"])
    opened = open_file(file)
    for read, found in (
        (lambda: read_bytes(file, opened, 3, 7), content[3:7]),
        (lambda: list_files(f"{run}/*.csv", [".csv"]), (file,)),
        (lambda: check_unchanged(file), None),
        (lambda: read_bytes(file, open_file(file), 0, 10), content),
        (lambda: read_file(file.url), content),
    ):
        caplog.clear()
        with server.switched("away"), ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(read)
            while "does not answer, trying again for 120 s" not in caplog.text:
                assert not waiting.done(), waiting.result()
            server.folder.joinpath("away").rename(server.folder / "back")
            assert waiting.result(HANG_SECS) == found
            (server.folder / "back").rename(server.folder / "away")
    opened.close()


def test_input_that_cannot_be_read_is_an_error_with_a_remedy(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("FIRST_SECS", "ANSWER_SECS"):
        monkeypatch.setattr(store_calls, limit, 0.0)
    away = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}
    for variables, remedy in (
        ({"AWS_PROFILE": "none", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, ".*; check the "),
        (away, ".* did not answer, though asked again for 0 s: .*; check its endpoint and the network"),
    ):
        fsspec.filesystem("s3").clear_instance_cache()
        with environment(variables):
            for read in (read_file, lambda url: list_files(url, [".csv"])):
                with pytest.raises(InputError, match=f"^cannot read s3://bucket/a.csv: {remedy}"):
                    read("s3://bucket/a.csv")
    fsspec.filesystem("s3").clear_instance_cache()
