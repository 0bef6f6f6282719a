"""Records the trainings of a program in MLflow: starts the process that writes, and sends it the events."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from operator import methodcaller
from queue import SimpleQueue
from typing import Any, assert_never

from psflow.ps_runtime.config.environment import child_environment
from psflow.ps_runtime.errors import InterruptedLoopError, PsflowError
from psflow.ps_runtime.estimator.attempt import CODE_DIGEST, Attempt
from psflow.ps_runtime.model.export.bundle import installed_writer
from psflow.ps_runtime.redaction import public, without_secrets
from psflow.ps_runtime.roles.event_codec import encode_event
from psflow.ps_runtime.roles.event_dispatch import without_events
from psflow.ps_runtime.roles.events import Event, RecordedEvent, Restored, RoleLost, SummaryFile
from psflow.ps_runtime.specs.arguments import ArgumentFaults
from psflow.ps_runtime.specs.run_config import RunConfig

EXPERIMENT = "psflow"
"""The experiment of `autolog`, unless it names another."""
CATCH_UP, END = "CatchUp", "End"
"""Kinds of messages to the process that writes, other than events."""
START_SECS = 15.0
"""For the process that writes to import MLflow and open the run, where the training has ended before that."""
END_SECS = {"FINISHED": 60.0, "FAILED": 5.0, "KILLED": 4.0}
"""Timeout for the remaining writes by the status with which the run ends, as in a flow."""
GRACE_SECS = 5.0
"""For that process to end by itself, once its time is over."""
MAX_EVENTS = 10_000
"""Events that wait for a process that takes none; further ones are dropped and counted."""
REMEDY = "training continues; the next training in this model_dir completes the run with what is there"

_SENT = RecordedEvent | SummaryFile | Restored | RoleLost

logger = logging.getLogger(__name__)


class RecorderAnswer(StrEnum):
    """Kinds of messages from the process that writes, each with a text."""

    OPENED = "opened"
    WARNING = "warning"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True)
class RecordingRequest:
    """What the process that writes needs to know about a job; sent as JSON."""

    model_dir: str
    uri: str | None
    """The store; None: that of the environment."""
    experiment: str | None
    run_id: str | None
    run_name: str
    is_callers: bool
    """Whether the run belongs to the user's program, which describes and ends it."""
    catches_up: bool
    """Whether the run gets the results of earlier attempts."""
    source: str
    params: Mapping[str, Any] = field(default_factory=dict)
    """The settings, nested and without credentials."""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Autolog:
    experiment: str | None
    """None: record no training, not even in an active run."""


_autolog: _Autolog | None = None


def autolog(experiment: str = EXPERIMENT, *, disable: bool = False) -> None:
    """Record each later training of this process as an MLflow run, or in the active run if there is one.

    The store is that of ``mlflow.set_tracking_uri`` or ``MLFLOW_TRACKING_URI``, else ``mlflow.db`` in the working
    directory.

    Parameters
    ----------
    experiment : str
        The experiment of new runs; that of a RunConfig takes precedence.
    disable : bool
        Record no training, not even in an active run, unless its RunConfig has an experiment.

    Raises
    ------
    UsageError
        If `experiment` is empty; an ArgumentTypeError if an argument has the wrong type.

    Notes
    -----
    It applies to trainings that begin after the call. A resumed job continues its run.

    Examples
    --------
    ::

        psflow.autolog(experiment="digits")
        train_and_evaluate(estimator, train_spec, eval_spec)
    """
    global _autolog
    faults = ArgumentFaults("autolog: ")
    if not isinstance(experiment, str):
        faults.add_type("experiment", "a str", experiment)
    elif not experiment:
        faults.add("autolog: experiment should be the name of an MLflow experiment, got ''")
    if not isinstance(disable, bool):
        faults.add_type("disable", "a bool", disable)
    faults.raise_any()
    _autolog = _Autolog(None if disable else experiment)


@dataclass(frozen=True)
class RunPlace:
    """Where a training is recorded: in the run of the caller, or in that of the job in an experiment."""

    uri: str | None
    experiment: str | None = None
    run_id: str | None = None


def requested_run(config: RunConfig) -> RunPlace | None:
    """Return where a training that this thread starts is recorded; None if nothing asks for a record.

    A run is active in one thread alone, so the thread of the caller has to ask. MLflow is not imported for that.
    """
    mlflow: Any = sys.modules.get("mlflow")
    is_disabled = _autolog is not None and _autolog.experiment is None
    if hasattr(mlflow, "active_run") and not is_disabled and (run := mlflow.active_run()) is not None:
        return RunPlace(str(mlflow.get_tracking_uri()), run_id=str(run.info.run_id))
    experiment = config.experiment or (None if _autolog is None else _autolog.experiment)
    if experiment is None:
        return None
    is_set = hasattr(mlflow, "is_tracking_uri_set") and mlflow.is_tracking_uri_set()
    return RunPlace(str(mlflow.get_tracking_uri()) if is_set else None, experiment)


@contextmanager
def recorded(
    place: RunPlace | None, attempt: Attempt, on_event: Callable[[Event], None]
) -> Iterator[Callable[[Event], None]]:
    """Yield a function that records each event at `place`, and calls `on_event` with it, within a block.

    The run ends with the block, as FINISHED, FAILED or KILLED, unless it is that of the caller. No failure of the
    record ends the block: it is logged.
    """
    if place is None:
        yield on_event
        return
    try:
        recorder = _Recorder(_request(place, attempt), attempt.note_run)
    except OSError as error:
        logger.warning("this training is not recorded in MLflow: no process starts (%s); %s", error, REMEDY)
        yield on_event
        return

    def record(event: Event) -> None:
        recorder.handle(event)
        on_event(event)

    try:
        yield record
        reason = attempt.end_reason()
    except BaseException as error:
        recorder.close("KILLED" if _is_stop(error) else "FAILED", {})
        raise
    recorder.close("FINISHED", {} if reason is None else {"psflow.stop_reason": reason})


def _is_stop(error: BaseException) -> bool:
    match error:
        case KeyboardInterrupt() | InterruptedLoopError():
            return True
        case SystemExit(code=code):
            return code == 128 + signal.SIGTERM
        case _:
            return False


def _request(place: RunPlace, attempt: Attempt) -> RecordingRequest:
    record = attempt.record
    is_callers = place.run_id is not None
    digest = record.facts[CODE_DIGEST]
    return RecordingRequest(
        model_dir=attempt.model_dir,
        uri=place.uri,
        experiment=place.experiment,
        run_id=place.run_id or record.run_id,
        run_name=f"{place.experiment}-{record.job_id[:6]}",
        is_callers=is_callers,
        catches_up=not is_callers or place.run_id == record.run_id,
        source=os.path.abspath(sys.argv[0] if os.path.isfile(sys.argv[0]) else "."),
        params=public(_params(attempt)),
        tags={
            "psflow.job_id": record.job_id,
            "psflow.kind": "train",
            "psflow.attempts": str(attempt.number),
            "psflow.model_dir": without_secrets(attempt.model_dir),
            **({} if digest is None else {"psflow.code_digest": digest}),
        },
    )


def _params(attempt: Attempt) -> dict[str, Any]:
    """Return the settings of a job by the names that a flow gives them, and its RunConfig."""
    job = attempt.job()
    elsewhere = {"model_dir", "tf_random_seed", "cluster", "experiment"}
    settings = [each.name for each in fields(job.config) if each.init and each.name not in elsewhere]
    return {
        "model_dir": job.model_dir,
        "seed": job.seed,
        "model": {"params": _plain(job.params)},
        "train": {name: getattr(job.train_spec, name) for name in ("max_steps", "non_finite", "each_worker_reads_all")},
        "cluster": {"ps": job.num_ps, "workers": job.num_workers},
        "config": {name: _setting(getattr(job.config, name)) for name in settings},
    }


def _setting(value: Any) -> Any:
    """Return a setting of a RunConfig as plain data; a consistency or a deadline as it is written in a program."""
    return str(value) if is_dataclass(value) else value


def _plain(value: Any) -> Any:
    """Return a hyper-parameter as plain data; of other objects, such as arrays, only the type."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return {str(key): _plain(each) for key, each in value.items()}
        case _:
            return f"a {type(value).__qualname__}"


class _Recorder:
    """The process that writes one job to MLflow, and the threads that talk to it.

    Notes
    -----
    `handle` does not block and is thread-safe. The address of the store, which may hold a password, goes through the
    pipe: others see the command of a process.
    """

    def __init__(self, request: RecordingRequest, note_run: Callable[[str], None]) -> None:
        self._note_run = note_run
        self._messages: SimpleQueue[Event | tuple[str, Any] | None] = SimpleQueue()
        self._num_dropped = 0
        self._run_id: str | None = None
        self._is_over = False
        """Whether it has said how it ended, or why it records nothing."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", installed_writer().recorder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment({}),
            start_new_session=True,  # Ctrl-C is for this process, which says how the run ends
        )
        self._threads = [
            threading.Thread(target=self._send, args=(request,), name="psflow-recorder-send", daemon=True),
            threading.Thread(target=self._hear, name="psflow-recorder-hear", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def handle(self, event: Event) -> None:
        """Send an event, if it is one that is recorded."""
        if not isinstance(event, _SENT) or self._is_over:
            return
        if self._messages.qsize() >= MAX_EVENTS:
            self._num_dropped += 1
            return
        # the last events of a role may be lost with it, but not what it has written
        self._messages.put((CATCH_UP, {}) if isinstance(event, RoleLost) else event)

    def close(self, status: str, tags: Mapping[str, str]) -> None:
        """End the run, and wait until the remaining writes are done, or their time is over. Blocks."""
        self._messages.put((END, {"status": status, "tags": tags, "timeout_secs": END_SECS[status]}))
        self._messages.put(None)
        limit = END_SECS[status] + START_SECS + GRACE_SECS
        try:
            self._process.wait(limit)
        except subprocess.TimeoutExpired:
            self._is_over = True
            self._warn(f"the process that writes did not end within {limit:g} s, and is killed")
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join()
        if self._num_dropped:
            logger.warning("MLflow run %s lacks %d events: its process took none", self._run_id, self._num_dropped)

    def _send(self, request: RecordingRequest) -> None:
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as pipe:  # the other thread sees why nothing takes them
            pipe.write(json.dumps(asdict(request)).encode() + b"\n")
            pipe.flush()
            while (message := self._messages.get()) is not None:
                line = message if isinstance(message, tuple) else encode_event(message)
                try:
                    text = json.dumps(line, default=methodcaller("item"))  # of numpy's numbers
                except (AttributeError, TypeError, ValueError) as error:
                    logger.warning("not written to MLflow: %s (%s)", message, error)
                    continue
                pipe.write(text.encode() + b"\n")
                pipe.flush()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        with without_events(), self._process.stdout as answers:
            for line in answers:
                kind, text = json.loads(line)
                self._take(RecorderAnswer(kind), text)
            if self._is_over:
                return
            self._is_over = True
            code = self._process.wait()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            self._warn(f"the process that writes ended with {how}")

    def _warn(self, reason: str) -> None:
        if self._run_id is None:
            logger.warning("this training is not recorded in MLflow: %s; %s", reason, REMEDY)
        else:
            logger.warning("MLflow run %s lacks the rest of this training: %s; %s", self._run_id, reason, REMEDY)

    def _take(self, kind: RecorderAnswer, text: str) -> None:
        match kind:
            case RecorderAnswer.OPENED:
                self._run_id = text
                try:
                    self._note_run(text)
                except (PsflowError, OSError) as error:
                    logger.warning("job.json does not name the MLflow run %s: %s", text, error)
            case RecorderAnswer.WARNING:
                logger.warning("%s", text)
            case RecorderAnswer.FAILED:
                self._is_over = True
                self._warn(text)
                self._messages.put(None)
            case RecorderAnswer.ENDED:
                self._is_over = True
            case _:
                assert_never(kind)
