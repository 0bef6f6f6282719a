"""Converts events to points of curves, with valid names and no repeated points after a resume."""

from __future__ import annotations

import math
import re
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from psflow.ps_runtime.checkpoint.records import EvaluationRecord, measured
from psflow.ps_runtime.roles.events import Evaluation, Metrics
from psflow.ps_runtime.scratch import scratch_directory

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

MAX_KEY_LENGTH = 250


def valid_key(name: str) -> str:
    """Return `name` with ``_`` for each character that MLflow refuses in the name of a metric or parameter.

    Examples
    --------
    >>> valid_key("dense/kernel:norm (l2)")
    'dense/kernel:norm _l2_'
    """
    return re.sub(r"[^/\w.\- :]", "_", name).strip("/")[:MAX_KEY_LENGTH]


def evaluation_prefix(name: str | None) -> str:
    """Return the prefix of the metrics of an evaluation: ``eval/``, or ``eval_<name>/`` for a named one."""
    return f"eval_{name}/" if name else "eval/"


class Points:
    """Written points of a run, and new points of events.

    Training metrics come in order of steps, so a point at or below the last one of its curve is old: it comes from
    steps repeated after a resume. An evaluation may come late, for an old checkpoint, so its steps are stored
    individually, each with the time of its point: the evaluation of a checkpoint saved later, at a repeated step,
    becomes an additional point.
    """

    def __init__(self, written: Mapping[str, Mapping[int, int]] = {}) -> None:
        self._times: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self._last: dict[str, int] = {}
        for key, times in written.items():
            self._times[key] = dict(times)
            self._last[key] = max(times, default=-1)
        self.newest_step = max((step for key, step in self._last.items() if _is_of_training(key)), default=-1)

    @classmethod
    def of_run(cls, client: MlflowClient, run_id: str) -> Points:
        """Read the points of a run from MLflow: one request for each curve of an evaluation, and one for the rest.

        Of all other curves only the last point matters, which a run includes.
        """
        latest: list[Metric] = client.get_run(run_id).data._metric_objs
        written = {metric.key: {metric.step: metric.timestamp} for metric in latest}
        for key in filter(is_of_evaluation, written):
            for metric in client.get_metric_history(run_id, key):
                written[key][metric.step] = max(metric.timestamp, written[key].get(metric.step, 0))
        return cls(written)

    def of_metrics(self, event: Metrics) -> list[Metric]:
        """Return the new points of `event`, and count them as written."""
        fresh = {
            key: value
            for name, value in event.values.items()
            if event.step > self._last.get(key := valid_key(name), -1)
        }
        self._last |= dict.fromkeys(fresh, event.step)
        return _metrics(fresh, event.step, _ms(event.time), None)

    def of_evaluation(self, event: Evaluation, model_id: str | None) -> list[Metric]:
        """Return the new points of `event`, linked to the model that was evaluated."""
        prefix, saved_at = evaluation_prefix(event.name), _ms(event.checkpoint_saved_at)
        fresh = {
            key: value
            for name, value in event.metrics.items()
            if name != "global_step" and saved_at > self._times[key := valid_key(prefix + name)].get(event.step, -1)
        }
        # not before the checkpoint, whatever the clock of its host: else it would count for an earlier checkpoint
        points = _metrics(fresh, event.step, max(_ms(event.time), saved_at), model_id)
        for point in points:
            self._times[point.key][event.step] = point.timestamp
        return points


def evaluation_event(evaluation: EvaluationRecord) -> Evaluation:
    """Return the event of a recorded `evaluation`."""
    return Evaluation(
        evaluation.global_step,
        measured(evaluation.metrics),
        evaluation.checkpoint_saved_at,
        evaluation.name or None,
        time=evaluation.evaluated_at,
    )


def is_of_evaluation(key: str) -> bool:
    """Return whether a curve may be of an evaluation, by its `evaluation_prefix`."""
    return key.startswith("eval")


def _is_of_training(key: str) -> bool:
    """Return whether a curve has training steps: users may log other curves with their own steps into the run."""
    return key == "loss" or key.startswith(("role/", "system/"))


def _metrics(values: Mapping[str, float], step: int, timestamp: int, model_id: str | None) -> list[Metric]:
    from mlflow.entities import Metric

    return [Metric(key, _number(value), timestamp, step, model_id=model_id) for key, value in values.items()]


def _ms(secs: float) -> int:
    return round(1000 * secs)


def _number(value: float) -> float:
    return value if math.isfinite(value) else math.nan  # MLflow stores infinity as 1.8e308, which distorts the chart


class Notes:
    """Pending tags and files of one run.

    Notes
    -----
    `put_tags` and `put_file` never block and are thread-safe. A pending tag or file is replaced by a newer one of the
    same name, so that the number of names limits the memory while MLflow is unavailable.
    """

    def __init__(self) -> None:
        self._tags: dict[str, str] = {}
        self._files: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put_tags(self, tags: Mapping[str, str]) -> None:
        """Queue tags of the run."""
        with self._lock:
            self._tags |= {valid_key(name): value for name, value in tags.items()}

    def put_file(self, file: str, content: bytes) -> None:
        """Queue a file, such as ``plots/roc.png``, for the artifacts of the run."""
        with self._lock:
            self._files[file] = content

    def waiting(self) -> tuple[dict[str, str], dict[str, bytes]]:
        """Return the pending tags and files."""
        with self._lock:
            return dict(self._tags), dict(self._files)

    def __len__(self) -> int:
        return len(self._tags) + len(self._files)

    def write_one(self, client: MlflowClient, run_id: str) -> None:
        """Write all tags, else one file; a failed one stays pending, unless it was replaced meanwhile."""
        with self._lock:
            tags = dict(self._tags)
            file, content = next(iter(self._files.items()), ("", b""))
        if tags:
            from mlflow.entities import RunTag

            client.log_batch(run_id, tags=[RunTag(name, value) for name, value in tags.items()])
            self._forget(self._tags, tags)
        elif file:
            _log_file(client, run_id, PurePosixPath(file), content)
            self._forget(self._files, {file: content})

    def drop_one(self) -> str:
        """Drop what `write_one` cannot write; return its description."""
        with self._lock:
            if self._tags:
                names, self._tags = ", ".join(self._tags), {}
                return f"the tags {names}"
            file = next(iter(self._files), "")
            self._files.pop(file, None)
            return f"the file {file}"

    def _forget(self, kept: dict[str, Any], written: Mapping[str, Any]) -> None:
        with self._lock:
            for name, value in written.items():
                if kept.get(name) is value:
                    del kept[name]


def _log_file(client: MlflowClient, run_id: str, file: PurePosixPath, content: bytes) -> None:
    folder = None if file.parent == PurePosixPath(".") else str(file.parent)
    with scratch_directory() as scratch:
        path = Path(scratch) / file.name
        path.write_bytes(content)
        client.log_artifact(run_id, str(path), folder)
