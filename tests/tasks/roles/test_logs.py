"""Log records of roles in files and in Prefect."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from prefect.exceptions import CancelledRun

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ConfigError, RoleFailedError, StoreError
from psflow.ps_runtime.redaction import redact_logs
from psflow.ps_runtime.roles.events import LogMessage
from psflow.tasks import role_runs as module
from psflow.tasks.role_runs import RoleLogs, hide_tracebacks
from tests.limits import HANG_SECS


def log(role: str, message: str, level: int = logging.INFO) -> LogMessage:
    return LogMessage(level, "mine", message, role=role, time=0.25)


def test_one_file_with_the_names_of_roles(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "roles.log"
    for attempt in (1, 2):
        logs = RoleLogs(path)
        logs.handle(log("worker-0", f"100 % of attempt {attempt}"))
        logs.handle(log("ps-0", "slow", logging.WARNING))
        logs.close()
    assert path.read_text().splitlines()[1:3] == [
        "1970-01-01T00:00:00.250Z ps-0 WARNING mine: slow",
        "1970-01-01T00:00:00.250Z worker-0 INFO mine: 100 % of attempt 2",
    ]


def test_each_task_run_gets_what_its_role_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    logs = RoleLogs(tmp_path / "roles.log")
    logs.handle(log("worker-0", "early"))
    logs.handle(log("ps-0", "of another"))
    with logs.to("worker-0", logging.getLogger("task run")):
        logs.handle(log("worker-0", "100 %", logging.ERROR))
    logs.handle(log("worker-0", "late"))
    logs.close()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "mine: early"),
        ("ERROR", "mine: 100 %"),
    ]


def test_a_file_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "roles.log").mkdir()
    logs = RoleLogs(tmp_path / "roles.log")
    with logs.to("ps-0", logging.getLogger("ps")):
        for _ in range(3):
            logs.handle(log("ps-0", "the cause", logging.ERROR))
    logs.close()
    first, record, *others = caplog.records
    assert [told.getMessage() for told in (first, *others)] == ["mine: the cause"] * 3
    assert (
        f"cannot write the logs of roles to {tmp_path / 'roles.log'}: [Errno 21] Is a directory" in record.getMessage()
    )
    assert record.exc_info is None


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("")
    logs = RoleLogs(tmp_path / "logs" / "roles.log")
    logs.handle(log("ps-0", "x"))
    logs.close()
    assert "cannot write the logs of roles to" in caplog.text


def test_files_are_kept_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 1000)
    logs = RoleLogs(tmp_path / "roles.log")
    for _ in range(200):
        logs.handle(log("ps-0", "x" * 50))
    logs.close()
    files = list(tmp_path.iterdir())
    assert len(files) == 1 + module.FILES_TO_KEEP
    assert all(file.stat().st_size <= 1000 for file in files)


def test_why_the_job_failed_is_reported_once_by_the_role_that_caused_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failure = RoleFailedError("chief-0", "ValueError('no luck')")
    failure.__cause__ = ValueError("no luck")
    logs = RoleLogs(tmp_path / "roles.log")
    with logs.to("chief-0", logging.getLogger("chief")), logs.to("worker-0", logging.getLogger("worker")):
        for _ in range(2):
            logs.log_failure(failure)
    logs.close()
    told = "chief-0 failed: ValueError('no luck')\nValueError: no luck"
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [("chief", "ERROR", f"psflow: {told}")]
    assert told in (tmp_path / "roles.log").read_text()


@pytest.mark.parametrize("name", ["prefect.flow_runs", "prefect.task_runs", "prefect.engine"])
def test_prefect_hides_tracebacks_of_our_own_errors(
    name: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    factory = logging.getLogRecordFactory()
    request.addfinalizer(lambda: logging.setLogRecordFactory(factory))
    redact_logs()
    hide_tracebacks()
    cancelled = CancelledRun("ended by SIGTERM")  # its state says so, and it is no error
    for error in (RoleFailedError("chief-0", "x"), ConfigError(("y",)), cancelled, ValueError("of the flow itself")):
        try:
            raise error
        except Exception:
            logging.getLogger(name).exception("it failed")
    logging.getLogger(name).error("a state that was returned", exc_info=True)
    has_trace = [bool(record.exc_info or record.exc_text) for record in caplog.records]
    assert has_trace == [False, False, True, False]


def test_an_interrupted_flow_run_is_no_error_of_each_task_run(caplog: pytest.LogCaptureFixture) -> None:
    hide_tracebacks()
    for line in ("Finished in state Cancelled('ps-0 was stopped')", "Finished in state Failed('ps-0 failed')"):
        logging.getLogger("prefect.task_runs").error(line)
    assert [record.getMessage() for record in caplog.records] == ["Finished in state Failed('ps-0 failed')"]


def test_logs_in_a_remote_model_dir_follow_those_of_earlier_attempts(tmp_path: Path) -> None:
    model_dir = f"memory://{tmp_path.name}/run"
    for attempt in (1, 2):
        logs = RoleLogs.of(model_dir)
        logs.handle(log("ps-0", f"attempt {attempt}"))
        logs.close()
        logs.close()
    lines = FileStore(model_dir).read("logs/roles.log").decode().splitlines()
    assert [line.rpartition(": ")[2] for line in lines] == ["attempt 1", "attempt 2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SEND_SECS", 0.01)
        logs = RoleLogs.of(model_dir)
        logs.handle(log("ps-0", "attempt 3"))
        deadline = Deadline(HANG_SECS)
        while b"attempt 3" not in FileStore(model_dir).read("logs/roles.log"):
            assert not deadline.has_passed
        logs.close()


def test_a_store_that_takes_no_logs_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(self: FileStore, name: str, data: bytes) -> None:
        raise StoreError(self.url, "it is away")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStore, "put", refuse)
        patch.setattr(module, "SEND_SECS", 0.01)
        logs = RoleLogs.of(f"memory://{tmp_path.name}/run")
        logs.handle(log("ps-0", "x"))
        logs.close()
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith("cannot write the logs of roles to memory://")
    assert "it is away" in said


def test_logs_of_earlier_attempts_that_cannot_be_read_are_not_overwritten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: FileStore, name: str) -> bytes:
        raise StoreError(self.url, "it is away")

    model_dir = f"memory://{tmp_path.name}/run"
    FileStore(model_dir).put("logs/roles.log", b"attempt 1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStore, "read", refuse)
        logs = RoleLogs.of(model_dir)
        logs.handle(log("ps-0", "attempt 2"))
        logs.close()
    assert FileStore(model_dir).read("logs/roles.log") == b"attempt 1\n"
    assert "it is away" in caplog.text
