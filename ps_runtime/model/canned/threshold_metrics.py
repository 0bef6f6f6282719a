"""Metrics of probabilities that are held against thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from psflow.ps_runtime import metrics
from psflow.ps_runtime.losses import FloatArray

__all__ = ["area_metrics", "threshold_metrics"]


def area_metrics(
    events: NDArray[Any], probabilities: FloatArray, weights: NDArray[Any] | None
) -> dict[str, metrics.Metric]:
    """Return the areas below two curves over all thresholds, ``auc`` and ``auc_precision_recall``."""
    return {
        "auc": metrics.auc(events, probabilities, weights),
        "auc_precision_recall": metrics.auc(
            events, probabilities, weights, curve="PR", summation_method="careful_interpolation"
        ),
    }


def threshold_metrics(
    events: NDArray[Any], probabilities: FloatArray, thresholds: Sequence[float], weights: NDArray[Any] | None
) -> dict[str, metrics.Metric]:
    """Return accuracy, precision and recall of the events whose probability is larger than each threshold."""
    measured: dict[str, metrics.Metric] = {}
    for threshold in thresholds:
        guesses, ending = probabilities > threshold, f"positive_threshold_{threshold:g}"
        measured[f"accuracy/{ending}"] = metrics.accuracy(events, guesses, weights)
        measured[f"precision/{ending}"] = metrics.precision(events, guesses, weights)
        measured[f"recall/{ending}"] = metrics.recall(events, guesses, weights)
    return measured
