"""Sends events to processes that write them to MLflow, and keeps such a process for the next training."""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from operator import methodcaller
from queue import SimpleQueue
from typing import Any, assert_never

from psflow.ps_runtime.config.environment import child_environment
from psflow.ps_runtime.errors import PsflowError
from psflow.ps_runtime.model.export.bundle import installed_writer
from psflow.ps_runtime.roles.event_codec import encode_event
from psflow.ps_runtime.roles.event_dispatch import without_events
from psflow.ps_runtime.roles.events import Event, RecordedEvent, Restored, RoleLost, SummaryFile

BEGIN, CATCH_UP, END = "Begin", "CatchUp", "End"
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
REMEDY_OF_EVALUATION = "evaluate again to record it"

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
    """What the process that writes needs to know about a training or an evaluation; sent as JSON."""

    model_dir: str
    uri: str | None
    """The store; None: that of the environment."""
    experiment: str | None
    run_id: str | None
    run_name: str
    is_callers: bool
    """Whether the run belongs to the user's program or has ended: the record neither describes nor ends it."""
    catches_up: bool
    """Whether the run gets the results of earlier attempts."""
    source: str
    trains: bool = True
    """Whether it is a training, whose caller owns the model_dir."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """The settings, nested and without credentials."""
    tags: Mapping[str, str] = field(default_factory=dict)


class _Writer:
    """A process that writes to MLflow, one training or evaluation after the other.

    Notes
    -----
    It ends when its stdin does, at the latest with this process.
    """

    def __init__(self, surroundings: tuple[Any, ...]) -> None:
        self.surroundings = surroundings
        """What the process has inherited."""
        program, _, environment = surroundings
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process, which says how the run ends
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.answers = self.process.stdin, self.process.stdout

    def close(self) -> None:
        """End the process. Blocks."""
        _writers.discard(self)
        with suppress(OSError):  # it has ended by itself
            self.requests.close()
        try:
            self.process.wait(GRACE_SECS)
        except subprocess.TimeoutExpired:
            logger.warning("the process that writes to MLflow did not end within %g s, and is killed", GRACE_SECS)
            self.process.kill()
            self.process.wait()
        self.answers.close()


_writers: set[_Writer] = set()
_idle: list[_Writer] = []
"""Those of `_writers` that wait for the next training or evaluation: two threads that train have one each."""


def _writer() -> _Writer:
    """Return an idle process that writes, else a new one.

    A process that has inherited another environment or working directory ends: it might find another store.
    """
    surroundings = (installed_writer().recorder, os.getcwd(), child_environment({}))
    with suppress(IndexError):
        while True:
            writer = _idle.pop()
            if writer.process.poll() is None and writer.surroundings == surroundings:
                return writer
            writer.close()
    writer = _Writer(surroundings)
    _writers.add(writer)
    return writer


def start_writer() -> None:
    """Have a process import MLflow beside what is recorded only at its end; raise OSError if none starts."""
    _idle.append(_writer())


@atexit.register
def end_writers() -> None:
    """End the processes that wait for something to write; those that are writing end with this process."""
    with suppress(IndexError):
        while True:
            _idle.pop().close()


def _forget_writers() -> None:
    """Leave the processes to the parent of this fork, whose end they should see."""
    with open(os.devnull, "r+b") as nothing:
        for writer in _writers:
            for pipe in (writer.requests, writer.answers):
                os.dup2(nothing.fileno(), pipe.fileno(), inheritable=False)
            writer.process.returncode = 0  # not a child of this process
    _idle.clear()
    _writers.clear()


os.register_at_fork(after_in_child=_forget_writers)


class Recorder:
    """One training or evaluation of a process that writes, and the threads that talk to it.

    Notes
    -----
    `handle` does not block and is thread-safe. The address of the store, which may hold a password, goes through the
    pipe: others see the command of a process.
    """

    def __init__(self, request: RecordingRequest, note_run: Callable[[str], None]) -> None:
        self._what, self._remedy = ("training", REMEDY) if request.trains else ("evaluation", REMEDY_OF_EVALUATION)
        self._note_run = note_run
        self._messages: SimpleQueue[Event | tuple[str, Any] | None] = SimpleQueue()
        self._num_dropped = 0
        self._run_id: str | None = None
        self._is_over = self._has_ended = False
        """Whether the process has said how this ended, or why it records nothing; whether it takes the next."""
        self._writer = _writer()
        self._messages.put((BEGIN, asdict(request)))
        self._sender = threading.Thread(target=self._send, name="psflow-recorder-send", daemon=True)
        self._hearer = threading.Thread(target=self._hear, name="psflow-recorder-hear", daemon=True)
        self._sender.start()
        self._hearer.start()

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
        self._hearer.join(limit)
        if self._hearer.is_alive():
            self._is_over = True
            self._warn(f"the process that writes did not answer within {limit:g} s, and is killed")
            self._writer.process.kill()
            self._hearer.join()
        self._sender.join()
        if self._has_ended:
            _idle.append(self._writer)
        else:
            self._writer.close()
        if self._num_dropped:
            logger.warning("MLflow run %s lacks %d events: its process took none", self._run_id, self._num_dropped)

    def _send(self) -> None:
        pipe = self._writer.requests
        with suppress(OSError):  # the other thread sees why nothing takes them
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
        with without_events():
            for line in self._writer.answers:
                kind, text = json.loads(line)
                self._take(RecorderAnswer(kind), text)
                if self._has_ended:
                    return
            if self._is_over:
                return
            self._is_over = True
            code = self._writer.process.wait()
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            self._warn(f"the process that writes ended with {how}")

    def _warn(self, reason: str) -> None:
        if self._run_id is None:
            logger.warning("this %s is not recorded in MLflow: %s; %s", self._what, reason, self._remedy)
        else:
            rest = f"MLflow run {self._run_id} lacks the rest of this {self._what}"
            logger.warning("%s: %s; %s", rest, reason, self._remedy)

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
                self._is_over = self._has_ended = True
            case _:
                assert_never(kind)
