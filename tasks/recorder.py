"""Program that records one job in MLflow, from the events that the process of a user's program sends to its stdin."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord, measured
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.files import flat
from psflow.ps_runtime.estimator.recording import (
    CATCH_UP,
    END,
    END_SECS,
    ENDED,
    FAILED,
    OPENED,
    START_SECS,
    WARNING,
    RecordingRequest,
)
from psflow.ps_runtime.roles.event_codec import decode_event
from psflow.ps_runtime.roles.events import Checkpoint, Evaluation, Event, Export, Metrics, RecordedEvent, SummaryFile
from psflow.tasks.exports.exported import CHOSEN, Exported, best_record, exports_of
from psflow.tasks.tracking.context import code_version
from psflow.tasks.tracking.models import BEST
from psflow.tasks.tracking.points import evaluation_event
from psflow.tasks.tracking.store import prepare_store
from psflow.tasks.tracking.tracker import Tracker
from psflow.tasks.tracking.writes import keep_pending, read_pending


def events_on_disk(model_dir: str) -> list[RecordedEvent]:
    """Return events for the results of earlier attempts on disk: those of a killed process are lost.

    The tracker ignores events that it has already recorded.
    """
    store = CheckpointStore(model_dir)
    events: list[RecordedEvent] = [Checkpoint(step, store.path(step)) for step in store.steps()]
    evaluations = EvaluationLog(model_dir).read()
    events += [evaluation_event(evaluation) for evaluation in evaluations]
    best = best_record(model_dir)
    made = [export for export in exports_of(model_dir) if export.exporter != CHOSEN]  # registered by psflow export
    events += [
        Export(export.exporter, export.step, export.version, export.path, False, _measured_for(export, evaluations))
        for export in made
        if best is None or (export.exporter, export.version) != (BEST, best.version)
    ]
    if best is not None:
        events.append(Export(BEST, best.step, best.version, best.path, True, measured(best.metrics)))
    return events


def _measured_for(export: Exported, evaluations: Sequence[EvaluationRecord]) -> dict[str, float]:
    """Return the metrics of the exported checkpoint, preferring the unnamed evaluation."""
    made_of = export.step, export.saved_at
    found = [one for one in evaluations if (one.global_step, one.checkpoint_saved_at) == made_of]
    return measured(min(found, key=lambda one: one.name).metrics) if found else {}


Answer = Callable[[str, str], None]
Message = tuple[str, Mapping[str, Any]]

KILLED: Message = (END, {"status": "KILLED", "tags": {}, "timeout_secs": END_SECS["KILLED"]})
"""What a pipe that closes without an end means: as with a killed flow, whose runs others mark as killed."""


class _Warnings(logging.Handler):
    """Sends warnings of psflow to the user's program, which logs them."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(logging.WARNING)
        self._answer = answer

    def emit(self, record: logging.LogRecord) -> None:
        self._answer(WARNING, self.format(record))


def main() -> None:
    """Record one job; return when it has ended, or the program that sends its events has."""
    answer = _answers()
    package = logging.getLogger("psflow")
    package.addHandler(_Warnings(answer))
    package.propagate = False
    messages: SimpleQueue[Message] = SimpleQueue()
    request = RecordingRequest(**json.loads(sys.stdin.buffer.readline()))
    reader = threading.Thread(target=_read, args=(sys.stdin.buffer, messages), name="psflow-reader", daemon=True)
    reader.start()
    try:
        is_whole = _record(request, messages, answer)
    except Exception as error:  # each kind of store has its own errors
        answer(FAILED, str(error) or type(error).__name__)
    else:
        answer(ENDED, "whole" if is_whole else "incomplete")
    reader.join()


def _answers() -> Answer:
    """Return the function that answers; what libraries print goes to stderr."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def answer(kind: str, text: str) -> None:
        try:
            with lock:
                lines.write(json.dumps([kind, text]) + "\n")
        except OSError:  # the program that asked is gone
            pass

    return answer


def _read(lines: BinaryIO, messages: SimpleQueue[Message]) -> None:
    """Pass all messages on; from the end on the process has a limit, even if a store does not answer."""
    end = KILLED
    for line in lines:
        kind, facts = json.loads(line)
        if kind == END:
            end = kind, facts
            break
        messages.put((kind, facts))
    messages.put(end)
    limit = threading.Timer(end[1]["timeout_secs"] + START_SECS, os._exit, (1,))
    limit.daemon = True
    limit.start()


def _record(request: RecordingRequest, messages: SimpleQueue[Message], answer: Answer) -> bool:
    tracker = _open(request)
    answer(OPENED, tracker.run_id)
    try:
        tracker.take_back(read_pending(request.model_dir, tracker.run_id))
        if request.catches_up:
            _catch_up(tracker, request.model_dir)
        while (message := messages.get())[0] != END:
            if message[0] == CATCH_UP:
                _catch_up(tracker, request.model_dir)
            else:
                _handle(decode_event(message), tracker)
        _, end = message
        tracker.put_tags(end["tags"])
        return tracker.close(end["status"], end["timeout_secs"])
    except BaseException:
        tracker.close("FAILED", END_SECS["FAILED"])
        raise
    finally:
        keep_pending(request.model_dir, tracker.run_id, tracker.waiting())


def _open(request: RecordingRequest) -> Tracker:
    uri = prepare_store(request.uri)
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


def _handle(event: Event, tracker: Tracker) -> None:
    match event:
        case SummaryFile():
            tracker.put_file(event.file, b64decode(event.content_base64))
        case Metrics() | Checkpoint() | Evaluation() | Export():
            tracker.handle(event)
        case _:
            raise AssertionError(f"nothing records {event}")


def _catch_up(tracker: Tracker, model_dir: str) -> None:
    for event in events_on_disk(model_dir):
        tracker.handle(event)


if __name__ == "__main__":
    main()
