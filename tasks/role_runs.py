"""Runs the roles of a job as Prefect task runs, with their logs."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import Task, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, TaskRun
from prefect.exceptions import CancelledRun
from prefect.runtime import task_run
from prefect.states import Cancelled, Completed, Paused, Running

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.cluster.failures import trace_in_role
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import (
    PsflowError,
    RoleFailedError,
    RoleLostError,
    StoppedError,
    StorageError,
    TransportError,
)
from psflow.ps_runtime.roles.event_dispatch import without_events
from psflow.ps_runtime.roles.events import LogMessage
from psflow.ps_runtime.scratch import scratch_directory
from psflow.ps_runtime.specs.roles import RoleId
from psflow.tasks.connectivity import within

LoggerLike = logging.Logger | logging.LoggerAdapter[logging.Logger]

LOGS, ROLES_LOG = "logs", "roles.log"
SEND_SECS = 30.0
LAST_SEND_SECS = 10.0
MAX_FILE_BYTES = 10 << 20
FILES_TO_KEEP = 3
"""Number of old log files, in addition to the current one."""
MAX_EARLY = 1000
"""Records of a role that are buffered until its task run reads them."""

_log = logging.getLogger(__name__)


def hide_tracebacks() -> None:
    """Hide tracebacks of psflow's own errors, some of which Prefect logs three times. Idempotent.

    Cancelled and skipped runs are not logged as errors either, as their state shows it.
    """
    for name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine"):
        logging.getLogger(name).addFilter(_without_trace)  # adding a filter twice has no effect
    logging.getLogger("prefect.task_runs").addFilter(_is_no_cancellation)


def _without_trace(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], CancelledRun):
        return False
    if record.exc_info and isinstance(record.exc_info[1], PsflowError | None):
        record.exc_info = record.exc_text = None
    return True


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Finished in state Cancelled(")


class _SentLogs:
    """A local folder with the log files of a remote model_dir, sent every `SEND_SECS` and at the end.

    An object store cannot append to a file. A failure is logged once, and the job goes on.
    """

    def __init__(self, files: FileStore) -> None:
        self._files = files
        self._scratch = ExitStack()
        self.folder = Path(self._scratch.enter_context(scratch_directory()))
        self._sent: dict[str, tuple[int, int]] = {}
        self._has_failed = False
        self._is_over = threading.Event()
        try:
            for name in files.names(LOGS):
                (self.folder / name).write_bytes(files.read(f"{LOGS}/{name}"))
            self._is_whole = True
        except (StorageError, OSError) as error:  # to send new files would remove the lines of earlier attempts
            self._is_whole = False
            self._warn(error)
        self._thread = threading.Thread(target=self._run, name="psflow-logs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send what is left, for at most `LAST_SEND_SECS`. Idempotent."""
        self._is_over.set()
        self._thread.join(LAST_SEND_SECS)
        if self._thread.is_alive():
            self._warn(TimeoutError(f"the store did not take the last lines within {LAST_SEND_SECS:.0f} s"))
        self._scratch.close()

    def _run(self) -> None:
        while not self._is_over.wait(SEND_SECS):
            self._send()
        self._send()

    def _send(self) -> None:
        if not self._is_whole:
            return
        try:
            for path in self.folder.iterdir():
                state = path.stat()
                if self._sent.get(path.name) != (state.st_size, state.st_mtime_ns):
                    self._files.put(f"{LOGS}/{path.name}", path.read_bytes())
                    self._sent[path.name] = state.st_size, state.st_mtime_ns
        except (StorageError, OSError) as error:  # also that of a file which is renamed now
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            _log.warning("cannot write the logs of roles to %s: %s", self._files.location(LOGS), error)


class RoleLogs:
    """Collects the log records of the roles of one attempt.

    Notes
    -----
    Thread-safe; `handle` writes to a local file, and does not wait for Prefect. A write failure is logged once, and the
    job goes on.
    """

    def __init__(self, path: Path, sent: _SentLogs | None = None) -> None:
        self._path = path
        self._sent = sent
        self._lock = threading.RLock()
        self._loggers: dict[str, LoggerLike] = {}
        self._early: dict[str, deque[LogMessage]] = {}
        self._has_told_failure = False
        self._file = self._open()

    @classmethod
    def of(cls, model_dir: str) -> RoleLogs:
        """Return the logs of a model_dir, which begin with those of earlier attempts."""
        files = FileStore(model_dir)
        if files.is_local:
            return cls(Path(files.path(f"{LOGS}/{ROLES_LOG}")))
        sent = _SentLogs(files)
        return cls(sent.folder / ROLES_LOG, sent)

    def handle(self, event: LogMessage) -> None:
        """Store a log record of a role."""
        with self._lock:
            logger = self._loggers.get(event.role)
            if logger is None:
                self._early.setdefault(event.role, deque(maxlen=MAX_EARLY)).append(event)
            else:
                _pass_on(logger, event)
            if self._file is not None:  # after the logger, as a full disk is not the cause of the failure
                self._file.handle(_record(event))

    @contextmanager
    def to(self, role: str, logger: LoggerLike) -> Iterator[None]:
        """Send all past and future records of `role` to `logger` during the block."""
        with self._lock:
            for event in self._early.pop(role, ()):
                _pass_on(logger, event)
            self._loggers[role] = logger
        try:
            yield
        finally:
            with self._lock:
                del self._loggers[role]

    def log_failure(self, failure: RoleFailedError) -> None:
        """Log the cause of the failed job once, with the traceback, as a record of the role that caused it.

        On return the failure is in the log, possibly by another caller.
        """
        with self._lock:
            if not self._has_told_failure:
                self._has_told_failure = True
                text = "\n".join(part for part in (str(failure), trace_in_role(failure)) if part)
                self.handle(LogMessage(logging.ERROR, "psflow", text, role=failure.role))

    def close(self) -> None:
        """Close the file, and send it to a remote model_dir. Idempotent."""
        with self._lock:
            if self._file is not None:
                with suppress(OSError):  # full disk: closing flushes its buffer
                    self._file.close()
                self._file = None
        if self._sent is not None:
            self._sent.close()

    def _open(self) -> RotatingFileHandler | None:
        try:
            self._path.parent.mkdir(exist_ok=True)  # in a model_dir that its owner created
            file = _File(self._path, maxBytes=MAX_FILE_BYTES, backupCount=FILES_TO_KEEP, encoding="utf-8", delay=True)
        except OSError as error:
            _log.warning("cannot write the logs of roles to %s: %s", self._path, error)
            return None
        formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(role)s %(levelname)s %(name)s: %(message)s")
        formatter.converter = time.gmtime
        formatter.datefmt = "%Y-%m-%dT%H:%M:%S"
        file.setFormatter(formatter)
        return file


class _File(RotatingFileHandler):
    """Log file that reports a failed write once."""

    has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - name of logging
        if not self.has_failed:
            self.has_failed = True
            _log.warning("cannot write the logs of roles to %s: %s", self.baseFilename, sys.exc_info()[1])


def _record(event: LogMessage) -> logging.LogRecord:
    facts = {
        "created": event.time,
        "msecs": event.time % 1 * 1000,
        "levelno": event.level,
        "levelname": logging.getLevelName(event.level),
    }
    return logging.makeLogRecord(
        facts | {"name": event.logger, "msg": "%s", "args": (event.message,), "role": event.role}
    )


def _pass_on(logger: LoggerLike, event: LogMessage) -> None:
    with without_events():
        logger.log(event.level, "%s: %s", event.logger, event.message)


SLICE_SECS = 0.5
LAST_SECS = 1.0
"""Timeout of a role that should end and has not reported yet."""
MAX_RETRIES = 1000
"""More than the restarts of a role: the job itself limits those."""
RETIRED = "Retired"
"""Name of the state of a task run whose role has left in order, and may restart."""
ANSWER_SECS = 5.0


def _restarts(role_task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Return whether the task run failed because its incarnation was lost, so that the next one is a retry."""
    return isinstance(state.data, RoleLostError)


@task(
    name="role",
    task_run_name="{role}",
    cache_policy=NO_CACHE,
    persist_result=False,
    log_prints=False,
    retries=MAX_RETRIES,
    retry_condition_fn=_restarts,
)
def run_role(role: RoleId, job: ClusterJob, stop: threading.Event, logs: RoleLogs) -> dict[str, Any] | State[Any]:
    """Wait in slices until `role` has ended; return its report. Its log records go to the log of this task run.

    A lost incarnation fails this task run, and the next incarnation is a retry of it. After one that has left in order
    the task run is paused, as `RETIRED`, until the next one starts.

    Raises RoleFailedError if it failed; the cause is logged once, by the role that caused it, before any role fails.
    """
    with logs.to(str(role), get_run_logger()):
        return _end_of(role, job, stop, logs)


def _end_of(role: RoleId, job: ClusterJob, stop: threading.Event, logs: RoleLogs) -> dict[str, Any] | State[Any]:
    is_last, num_lost = False, max(0, task_run.run_count - 1)  # 0 outside of a task run
    absence: str | None = None
    while not is_last:
        is_last = stop.is_set()  # checked once more: it may have ended before
        try:
            report = job.wait(role, LAST_SECS if is_last else SLICE_SECS, num_lost)
        except StoppedError as error:
            return Cancelled(message=str(error))
        except RoleLostError as loss:
            if loss is not job.error(role):
                raise  # a new incarnation may follow
            return _failed(role, loss, job.root_cause(), logs)
        except Exception as error:  # a role may fail with anything
            return _failed(role, error, job.root_cause(), logs)
        if report is not None:
            return Completed(message=report["reason"]) if report["exit"] == "abandoned" else report
        if (reason := job.absence(role)) != absence:
            absence = reason
            _show(Running() if absence is None else Paused(name=RETIRED, message=absence))
    return Cancelled(message=f"{role} did not end in time")


def _show(state: State[Any]) -> None:
    """Set the state of the current task run, which Prefect replaces at its end."""
    run_id = task_run.id
    context = copy_context()  # holds Prefect's settings, which name the server

    def show() -> None:
        with get_client(sync_client=True) as client:
            client.set_task_run_state(UUID(run_id), state, force=True)

    try:
        within(ANSWER_SECS, lambda: context.run(show), "the Prefect API")
    except Exception as error:  # the role does not depend on it
        _log.debug("could not set the state of a task run to %s: %s", state.name, error)


def _failed(role: RoleId, error: Exception, cause: RoleFailedError, logs: RoleLogs) -> State[Any]:
    """Raise the failure of a role, or return its state if it ended because of another role."""
    if isinstance(error, TransportError) and isinstance(cause.__cause__, StoppedError):
        return Cancelled(message=str(error))  # all roles were ended, and this one noticed it by its peers
    logs.log_failure(cause)
    if isinstance(error, TransportError) and cause.role != str(role):
        return Cancelled(message=f"{role} ended because {cause}")
    raise RoleFailedError(str(role), cause.error if cause.role == str(role) else repr(error))
