"""What MLflow has not taken: kept in the model_dir until a later attempt writes it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.waiting_metrics import (
    WAITING_METRICS,
    WaitingMetrics,
    read_waiting_metrics,
    write_waiting_metrics,
)
from psflow.ps_runtime.checkpoint.waiting_notes import (
    WAITING_NOTES,
    WaitingNotes,
    read_waiting_notes,
    write_waiting_notes,
)
from psflow.ps_runtime.errors import StorageError
from psflow.ps_runtime.roles.events import Metrics

__all__ = ["Waiting", "keep_waiting", "read_waiting"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Waiting:
    """What of a run waits to be written, beside what the model_dir has anyway: checkpoints, evaluations, exports."""

    metrics: Sequence[Metrics] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


def keep_waiting(model_dir: str, run_id: str, waiting: Waiting) -> None:
    """Keep `waiting` of a run, and nothing of what was kept before; a directory without rights is reported."""
    try:
        if waiting.metrics:
            write_waiting_metrics(
                model_dir, [WaitingMetrics(run_id, m.step, m.time, m.values) for m in waiting.metrics]
            )
        if waiting.tags or waiting.files:
            write_waiting_notes(model_dir, WaitingNotes(run_id, waiting.tags, waiting.files))
    except (StorageError, OSError) as error:
        _log.warning("training metrics, tags and files that MLflow has not taken are lost: %s", error)
    with suppress(OSError):  # what a later attempt finds again is written once all the same
        if not waiting.metrics:
            FileStore(model_dir).remove(WAITING_METRICS)
        if not waiting.tags and not waiting.files:
            FileStore(model_dir).remove(WAITING_NOTES)


def read_waiting(model_dir: str, run_id: str) -> Waiting:
    """Return what is kept of a run, in its order; that of other runs is left out, with a warning.

    Raises
    ------
    CheckpointError
        If a file of it is damaged.
    """
    kept, notes = read_waiting_metrics(model_dir), read_waiting_notes(model_dir)
    others = {m.run_id for m in kept} | (set() if notes is None else {notes.run_id})
    others -= {run_id}
    if others:
        _log.warning("what waits in %s belongs to other MLflow runs: %s", model_dir, ", ".join(sorted(others)))
    metrics = [Metrics(m.step, m.values, time=m.time) for m in kept if m.run_id == run_id]
    if notes is None or notes.run_id != run_id:
        return Waiting(metrics)
    return Waiting(metrics, notes.tags, notes.files)
