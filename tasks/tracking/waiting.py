"""Training metrics that MLflow has not taken: kept in the model_dir until a later attempt writes them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.waiting_metrics import (
    WAITING_METRICS,
    WaitingMetrics,
    read_waiting_metrics,
    write_waiting_metrics,
)
from psflow.ps_runtime.errors import StorageError
from psflow.ps_runtime.roles.events import Metrics

__all__ = ["keep_waiting", "read_waiting"]

_log = logging.getLogger(__name__)


def keep_waiting(model_dir: str, run_id: str, waiting: Sequence[Metrics]) -> None:
    """Keep `waiting` of a run, and nothing of what was kept before; a directory without rights is reported."""
    if not waiting:
        with suppress(OSError):  # points that a later attempt finds again are written once all the same
            FileStore(model_dir).remove(WAITING_METRICS)
        return
    try:
        write_waiting_metrics(model_dir, [WaitingMetrics(run_id, m.step, m.time, m.values) for m in waiting])
    except (StorageError, OSError) as error:
        _log.warning("training metrics that MLflow has not taken are lost: %s", error)


def read_waiting(model_dir: str, run_id: str) -> list[Metrics]:
    """Return what is kept of a run, in its order; metrics of other runs are left out, with a warning.

    Raises
    ------
    CheckpointError
        If the file is damaged.
    """
    kept = read_waiting_metrics(model_dir)
    others = {m.run_id for m in kept} - {run_id}
    if others:
        _log.warning("metrics that wait in %s belong to other MLflow runs: %s", model_dir, ", ".join(sorted(others)))
    return [Metrics(m.step, m.values, time=m.time) for m in kept if m.run_id == run_id]
