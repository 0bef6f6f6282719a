"""Program that records jobs in MLflow, one after the other, from events that a user's program sends to its stdin."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, BinaryIO

from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord, measured
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.environment import prepare_environment
from psflow.ps_runtime.config.files import flat
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.estimator.recorder import (
    BEGIN,
    CATCH_UP,
    END,
    END_SECS,
    START_SECS,
    RecorderAnswer,
    RecordingRequest,
)
from psflow.ps_runtime.roles.event_codec import decode_event
from psflow.ps_runtime.roles.events import (
    Checkpoint,
    Evaluation,
    Event,
    Export,
    Metrics,
    RecordedEvent,
    Restored,
    SummaryFile,
)
from psflow.tasks.exports.exported import CHOSEN, Exported, best_export, exports_of
from psflow.tasks.owners import JOB_ID
from psflow.tasks.tracking.context import SystemMetrics, code_version
from psflow.tasks.tracking.lost_steps import LostSteps
from psflow.tasks.tracking.models import BEST
from psflow.tasks.tracking.points import evaluation_event
from psflow.tasks.tracking.store import mlflow_client, prepare_store, retried
from psflow.tasks.tracking.tracker import Tracker
from psflow.tasks.tracking.writes import keep_pending, read_pending

if TYPE_CHECKING:
    from mlflow import MlflowClient


def events_on_disk(model_dir: str) -> list[RecordedEvent]:
    """Return events for the results of earlier attempts on disk: those of a killed process are lost.

    The tracker ignores events that it has already recorded.
    """
    store = CheckpointStore(model_dir)
    events: list[RecordedEvent] = [Checkpoint(step, store.path(step)) for step in store.steps()]
    evaluations = EvaluationLog(model_dir).read()
    events += [evaluation_event(evaluation) for evaluation in evaluations]
    best = best_export(model_dir)
    made = [export for export in exports_of(model_dir) if export.exporter != CHOSEN]  # registered by psflow export
    events += [
        Export(export.exporter, export.step, export.version, export.path, False, _measured_for(export, evaluations))
        for export in made
        if best is None or (export.exporter, export.version) != (BEST, best.version)
    ]
    return events if best is None else [*events, best]


def _measured_for(export: Exported, evaluations: Sequence[EvaluationRecord]) -> dict[str, float]:
    """Return the metrics of the exported checkpoint, preferring the unnamed evaluation."""
    made_of = export.step, export.saved_at
    found = [one for one in evaluations if (one.global_step, one.checkpoint_saved_at) == made_of]
    return measured(min(found, key=lambda one: one.name).metrics) if found else {}


NOTE_SECS = 10.0
"""Seconds between two samples of the machine, as in a flow."""

_log = logging.getLogger(__name__)

Send = Callable[[RecorderAnswer, str], None]
Message = tuple[str, Mapping[str, Any]]

KILLED: Message = (END, {"status": "KILLED", "tags": {}, "timeout_secs": END_SECS["KILLED"]})
"""What a pipe that closes without an end means: as with a killed flow, whose runs others mark as killed."""


class _Warnings(logging.Handler):
    """Sends warnings of psflow to the user's program, which logs them."""

    def __init__(self, send: Send) -> None:
        super().__init__(logging.WARNING)
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(RecorderAnswer.WARNING, self.format(record))


def main() -> None:
    """Record one job after the other; return when the program that sends their events ends, or one has failed."""
    send = _sender()
    package = logging.getLogger("psflow")
    package.addHandler(_Warnings(send))
    package.propagate = False
    inbox = _Inbox(sys.stdin.buffer, send)
    prepare_environment()
    import mlflow  # noqa: F401 - beside the training, whose first message may come later

    while (request := inbox.next_request()) is not None:
        try:
            is_whole = _record(request, inbox.messages, send)
        except Exception as error:  # each kind of store has its own errors
            send(RecorderAnswer.FAILED, str(error) or type(error).__name__)
            return
        inbox.finish()
        send(RecorderAnswer.ENDED, "whole" if is_whole else "incomplete")


def _sender() -> Send:
    """Return the function that answers; what libraries print goes to stderr."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def send(kind: RecorderAnswer, text: str) -> None:
        try:
            with lock:
                lines.write(json.dumps([kind, text]) + "\n")
        except OSError:  # the program that asked is gone
            pass

    return send


class _Inbox:
    """The messages of the program; from the end of a job on it has a limit, even if a store does not answer."""

    def __init__(self, lines: BinaryIO, send: Send) -> None:
        self.messages: SimpleQueue[Message] = SimpleQueue()
        self._send = send
        self._limit: threading.Timer | None = None
        threading.Thread(target=self._read, args=(lines,), name="psflow-reader", daemon=True).start()

    def next_request(self) -> RecordingRequest | None:
        """Wait for the next job; None if the program has ended."""
        kind, facts = self.messages.get()
        return RecordingRequest(**facts) if kind == BEGIN else None

    def finish(self) -> None:
        """End the limit of a job."""
        assert self._limit is not None, "a job ends with its last message"
        self._limit.cancel()
        self._limit = None

    def _read(self, lines: BinaryIO) -> None:
        for line in lines:
            self._put(*json.loads(line))
        self._put(*KILLED)  # of a job
        self.messages.put(KILLED)  # instead of the next one

    def _put(self, kind: str, facts: Mapping[str, Any]) -> None:
        if kind == END and self._limit is None:
            self._limit = threading.Timer(facts["timeout_secs"] + START_SECS, _give_up, [self._send])
            self._limit.daemon = True
            self._limit.start()
        self.messages.put((kind, facts))


def _give_up(send: Send) -> None:
    send(RecorderAnswer.FAILED, "the store did not take it in time")
    os._exit(1)


def _record(request: RecordingRequest, messages: SimpleQueue[Message], send: Send) -> bool:
    tracker = _open(request)
    send(RecorderAnswer.OPENED, tracker.run_id)
    try:
        if request.trains:
            tracker.take_back(read_pending(request.model_dir, tracker.run_id))
        job = _Job(tracker, request)
        if request.catches_up:
            job.catch_up()
        end = job.follow(messages)
        tracker.put_tags(end["tags"])
        return tracker.close(end["status"], end["timeout_secs"])
    except BaseException:
        tracker.close("FAILED", END_SECS["FAILED"])
        raise
    finally:
        if request.trains:
            keep_pending(request.model_dir, tracker.run_id, tracker.waiting())


def _open(request: RecordingRequest) -> Tracker:
    uri = prepare_store(request.uri)
    if request.is_callers and request.trains:
        _warn_of_other_job(mlflow_client(uri), request)
    described = {} if request.is_callers else code_version(Path(request.source))
    return Tracker.open(
        uri,
        experiment=request.experiment or "",
        run_name=request.run_name,
        run_id=request.run_id,
        params={key: value for key, value in flat(request.params) if value is not None},
        tags={**request.tags, **described},
        is_callers=request.is_callers,
    )


def _warn_of_other_job(client: MlflowClient, request: RecordingRequest) -> None:
    from mlflow.exceptions import MlflowException

    run_id = str(request.run_id)
    try:
        other = retried(lambda: client.get_run(run_id)).data.tags.get(JOB_ID)
    except (MlflowException, OSError):  # whoever opens the run says why
        return
    if other not in (None, request.tags[JOB_ID]):
        _log.warning(
            "the active MLflow run %s has the job %s already: of this job, it lacks the steps that are there; start a "
            "run for each job, such as mlflow.start_run(nested=True)",
            run_id,
            other,
        )


class _Job:
    """Passes the events of one job on to its tracker, and adds what a flow adds."""

    def __init__(self, tracker: Tracker, request: RecordingRequest) -> None:
        self._tracker = tracker
        self._model_dir, self._trains = request.model_dir, request.trains
        self._lost_steps = LostSteps(tracker.tags, tracker.newest_step)
        self._system = SystemMetrics()
        self._step = self._num_restarts = 0

    def catch_up(self) -> None:
        """Record what is on disk; nothing is recorded twice."""
        for event in events_on_disk(self._model_dir):
            self._tracker.handle(event)

    def follow(self, messages: SimpleQueue[Message]) -> Mapping[str, Any]:
        """Record all events; return the facts of the end."""
        note = Deadline(NOTE_SECS)
        while True:
            try:
                kind, facts = messages.get(timeout=note.remaining_secs)
            except Empty:
                self._note()
                note = Deadline(NOTE_SECS)
                continue
            if kind == END:
                self._note()
                if self._trains:
                    self._tracker.put_tags(self._lost_steps.reached_tag(self._step))
                return facts
            if kind == CATCH_UP:
                self._num_restarts += 1
                self.catch_up()
                continue
            try:
                self._handle(decode_event((kind, facts)))
            except ProtocolError as error:
                _log.warning("not written to MLflow: %s", error)

    def _handle(self, event: Event) -> None:
        match event:
            case SummaryFile():
                self._tracker.put_file(event.file, b64decode(event.content_base64))
            case Restored():
                if self._lost_steps.roll_back(event.step, self._step):
                    self._tracker.put_tags(self._lost_steps.tags(event.step))
                self._step = event.step
            case Metrics() | Checkpoint():
                self._step = max(self._step, event.step)
                self._tracker.handle(event)
            case Evaluation() | Export():
                self._tracker.handle(event)
            case _:
                raise AssertionError(f"nothing records {event}")

    def _note(self) -> None:
        if not self._trains:
            return
        figures = {"restarts": self._num_restarts, "lost_steps": self._lost_steps.num_steps}
        counts = {name: float(value) for name, value in figures.items() if value}
        self._tracker.handle(Metrics(self._step, self._system.sample() | counts))


if __name__ == "__main__":
    main()
