"""Writes to MLflow that may fail: they are retried, kept in the model_dir, or dropped if refused."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.records import (
    WAITING_METRICS,
    WAITING_NOTES,
    WaitingMetrics,
    WaitingNotes,
    read_waiting_metrics,
    read_waiting_notes,
    write_waiting_metrics,
    write_waiting_notes,
)
from psflow.ps_runtime.errors import StorageError
from psflow.ps_runtime.roles.events import Metrics
from psflow.tasks.tracking.store import FAULTS_OF_THE_REQUEST, reason_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PendingWrites:
    """Pending writes of a run that are not in the model_dir anyway, unlike checkpoints, evaluations and exports."""

    metrics: Sequence[Metrics] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


def keep_pending(model_dir: str, run_id: str, waiting: PendingWrites) -> None:
    """Store `waiting` of a run in place of earlier pending writes; log a failure."""
    try:
        if waiting.metrics:
            write_waiting_metrics(
                model_dir, [WaitingMetrics(run_id, m.step, m.time, m.values) for m in waiting.metrics]
            )
        if waiting.tags or waiting.files:
            write_waiting_notes(model_dir, WaitingNotes(run_id, waiting.tags, waiting.files))
    except (StorageError, OSError) as error:
        _log.warning("training metrics, tags and files that MLflow has not stored are lost: %s", error)
    with suppress(OSError):  # a later attempt writes what it finds again only once
        if not waiting.metrics:
            FileStore(model_dir).remove(WAITING_METRICS)
        if not waiting.tags and not waiting.files:
            FileStore(model_dir).remove(WAITING_NOTES)


def read_pending(model_dir: str, run_id: str) -> PendingWrites:
    """Return the pending writes of a run, in order; those of other runs are ignored with a warning.

    Raises CheckpointError if one of the files is damaged.
    """
    kept, notes = read_waiting_metrics(model_dir), read_waiting_notes(model_dir)
    others = {m.run_id for m in kept} | (set() if notes is None else {notes.run_id})
    others -= {run_id}
    if others:
        _log.warning("pending writes in %s belong to other MLflow runs: %s", model_dir, ", ".join(sorted(others)))
    metrics = [Metrics(m.step, m.values, time=m.time) for m in kept if m.run_id == run_id]
    if notes is None or notes.run_id != run_id:
        return PendingWrites(metrics)
    return PendingWrites(metrics, notes.tags, notes.files)


MAX_ATTEMPTS = 5
MIN_SILENCE_SECS = 1.0
"""Silence that is reported: an answer usually takes milliseconds."""


class Writes:
    """Executes writes of one writer, in order."""

    def __init__(self, takes_writes: Callable[[], bool]) -> None:
        self._takes_writes = takes_writes
        self._attempts = self.num_failures = 0
        self.last_error: str | None = None
        self._began_at: float | None = None

    def attempt(self, write: Callable[[], object], give_up: Callable[[Exception], bool]) -> bool:
        """Call `write`, and `give_up` if it can never succeed; return whether to continue at once."""
        from mlflow.exceptions import MlflowException

        self._began_at = time.monotonic()
        try:
            write()
        except Exception as error:  # training must go on
            self.num_failures += 1
            self.last_error = f"{type(error).__name__}: {reason_of(error)}"
            hopeless = isinstance(error, MlflowException) and error.error_code in FAULTS_OF_THE_REQUEST
            self._attempts += 1 if hopeless or self._takes_writes() else 0
            if hopeless or self._attempts >= MAX_ATTEMPTS:
                self._attempts = 0
                return give_up(error)
            return False
        finally:
            self._began_at = None
        self._attempts = 0
        return True

    def trouble(self) -> str:
        """Return why the writer is not finished, for display. Thread-safe."""
        began_at = self._began_at
        silence = 0.0 if began_at is None else time.monotonic() - began_at
        found = [f"no answer for {silence:.0f} s"] if silence >= MIN_SILENCE_SECS else []
        found += [f"last error: {self.last_error}"] if self.last_error else []
        return ", ".join(found) or "MLflow answered each request, but too slowly to be done in time"
