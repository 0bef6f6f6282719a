"""Training metrics that MLflow has not taken: kept in the model_dir until a later attempt writes them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from contextlib import suppress

from psflow.ps_runtime.checkpoint.files import atomic_write_text
from psflow.ps_runtime.checkpoint.metrics_json import metrics_from_json, metrics_to_json
from psflow.ps_runtime.errors import StorageError
from psflow.ps_runtime.roles.events import Metrics

__all__ = ["keep_waiting", "read_waiting"]

FILE = "waiting_metrics.jsonl"

_log = logging.getLogger(__name__)


def keep_waiting(model_dir: str, waiting: Sequence[Metrics]) -> None:
    """Keep `waiting`, and nothing of what was kept before; a directory that cannot be written to is reported."""
    path = _path(model_dir)
    if not waiting:
        with suppress(FileNotFoundError):
            os.unlink(path)
        return
    lines = [json.dumps({"step": m.step, "time": m.time, "values": metrics_to_json(m.values)}) for m in waiting]
    try:
        atomic_write_text(path, "\n".join(lines) + "\n")
    except StorageError as error:
        _log.warning("training metrics that MLflow has not taken are lost: %s", error)


def read_waiting(model_dir: str) -> list[Metrics]:
    """Return what is kept, in its order; nothing, and a warning, if the file is damaged."""
    path = _path(model_dir)
    try:
        with open(path) as stream:
            kept = [json.loads(line) for line in stream]
        return [Metrics(m["step"], metrics_from_json(m["values"]), time=m["time"]) for m in kept]
    except FileNotFoundError:
        return []
    except (OSError, KeyError, TypeError, ValueError) as error:
        _log.warning("%s cannot be read, its metrics are lost: %s", path, error)
        return []


def _path(model_dir: str) -> str:
    return os.path.join(model_dir.removeprefix("file://"), FILE)
