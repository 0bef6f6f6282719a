"""``model_dir/waiting_metrics.jsonl``: training metrics that MLflow has not taken, for a later attempt to write."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.metrics_json import metrics_from_json, metrics_to_json
from psflow.ps_runtime.checkpoint.typed_json import UnixTime, as_kind, from_json
from psflow.ps_runtime.errors import CheckpointError

__all__ = ["WAITING_METRICS", "WaitingMetrics", "read_waiting_metrics", "write_waiting_metrics"]

WAITING_METRICS = "waiting_metrics.jsonl"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WaitingMetrics:
    """Metrics of one step."""

    run_id: str
    step: int
    time: UnixTime
    values: Mapping[str, float]

    @classmethod
    def from_facts(cls, facts: Any) -> WaitingMetrics:
        """Read a line of the file; ValueError, with the key, where it cannot be."""
        if not isinstance(facts, Mapping):
            raise ValueError(f"metrics: expected an object, got {facts!r}")
        plain = {**facts, "values": {}} if "values" in facts else facts  # its NaN is a word, which `as_kind` refuses
        return replace(as_kind(cls, plain, "metrics"), values=metrics_from_json(facts["values"]))


def write_waiting_metrics(model_dir: str, waiting: Sequence[WaitingMetrics]) -> None:
    """Write `waiting`, and nothing of what the file held before."""
    lines = [json.dumps(asdict(metrics) | {"values": metrics_to_json(metrics.values)}) + "\n" for metrics in waiting]
    FileStore(model_dir).put(WAITING_METRICS, "".join(lines).encode())


def read_waiting_metrics(model_dir: str) -> list[WaitingMetrics]:
    """Return what the file holds, in its order; a torn last line is left out, with a warning.

    Raises
    ------
    CheckpointError
        If a line is damaged, with its number.
    """
    files = FileStore(model_dir)
    if files.size(WAITING_METRICS) is None:
        return []
    *lines, rest = files.read(WAITING_METRICS).split(b"\n")
    path = files.path(WAITING_METRICS)
    if rest:
        _log.warning("%s: the last line has no end; its metrics are lost", path)
    waiting = []
    for number, line in enumerate(lines, start=1):
        try:
            waiting.append(WaitingMetrics.from_facts(from_json(line)))
        except ValueError as error:
            raise CheckpointError(path, f"line {number} is damaged: {error}; remove that line") from error
    return waiting
