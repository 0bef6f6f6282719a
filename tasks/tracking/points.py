"""Events to points of curves: names that MLflow takes, and no point twice after a resume."""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

__all__ = ["Points", "evaluation_prefix", "valid_key"]

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
    """Return what stands before the metrics of an evaluation: ``eval/``, or ``eval_<name>/`` for a named one."""
    return f"eval_{name}/" if name else "eval/"


class Points:
    """Which points of a run are written, and which events make new ones.

    A metric of training grows with its step, so a point at or below the last one of its curve is old: it comes from
    steps trained again after a resume. An evaluation may come late, for an old checkpoint, so its steps are remembered
    one by one.
    """

    def __init__(self, written: Mapping[str, Iterable[int]] = {}) -> None:
        self._steps: defaultdict[str, set[int]] = defaultdict(set)
        self._last: dict[str, int] = {}
        for key, steps in written.items():
            self._steps[key] = set(steps)
            self._last[key] = max(self._steps[key], default=-1)

    @classmethod
    def of_run(cls, client: MlflowClient, run_id: str) -> Points:
        """Read from MLflow which points the run has: a request for each curve of an evaluation, and one for the rest.

        The other curves grow with their step, and a run comes with the last point of each.
        """
        latest: list[Metric] = client.get_run(run_id).data._metric_objs
        written = {metric.key: {metric.step} for metric in latest}
        for key in filter(_is_of_evaluation, written):
            written[key] = {metric.step for metric in client.get_metric_history(run_id, key)}
        return cls(written)

    def of_metrics(self, event: Mapping[str, Any]) -> list[Metric]:
        """Return the new points of a ``metrics`` event, and hold them for written."""
        step = int(event["step"])
        fresh = {
            key: value for name, value in event["values"].items() if step > self._last.get(key := valid_key(name), -1)
        }
        self._last |= dict.fromkeys(fresh, step)
        return _metrics(fresh, step, event, None)

    def of_evaluation(self, event: Mapping[str, Any], model_id: str | None) -> list[Metric]:
        """Return the new points of an ``evaluation`` event, linked to the model that was evaluated."""
        step = int(event["step"])
        prefix = evaluation_prefix(event.get("name"))
        fresh = {
            key: value
            for name, value in event["metrics"].items()
            if name != "global_step" and step not in self._steps[key := valid_key(prefix + name)]
        }
        for key in fresh:
            self._steps[key].add(step)
        return _metrics(fresh, step, event, model_id)


def _is_of_evaluation(key: str) -> bool:
    """Return whether a curve may be one of an evaluation, as `evaluation_prefix` begins them."""
    return key.startswith("eval")


def _metrics(values: Mapping[str, Any], step: int, event: Mapping[str, Any], model_id: str | None) -> list[Metric]:
    from mlflow.entities import Metric

    timestamp = round(1000 * event.get("time", time.time()))
    return [Metric(key, _number(value), timestamp, step, model_id=model_id) for key, value in values.items()]


def _number(value: Any) -> float:
    number = float(value)
    return number if math.isfinite(number) else math.nan  # MLflow stores infinity as 1.8e308, which flattens the chart
