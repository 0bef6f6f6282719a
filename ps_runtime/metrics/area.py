"""Areas under curves that thresholds of predictions draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from psflow.ps_runtime.errors import did_you_mean
from psflow.ps_runtime.metrics.arguments import argument_error
from psflow.ps_runtime.metrics.base import Doubles
from psflow.ps_runtime.metrics.thresholds import (
    NUM_THRESHOLDS,
    Counts,
    ThresholdCounts,
    bucketed,
    even_thresholds,
    inner_thresholds,
)

__all__ = ["PrecisionRecallArea", "RocArea", "auc"]

Curve = Literal["ROC", "PR"]
SummationMethod = Literal["trapezoidal", "careful_interpolation", "minoring", "majoring"]


@dataclass(frozen=True, eq=False)
class RocArea(ThresholdCounts):
    """Area under the curve of true over false positive rate."""

    _: KW_ONLY
    summation_method: SummationMethod

    def result(self) -> float:
        """Return the area; NaN if one of the classes has no example."""
        counts = self.counts()
        positives, negatives = float(np.sum(self.positives)), float(np.sum(self.negatives))
        if not (positives and negatives):
            return math.nan
        # careful interpolation is of precision; between two points of this curve the straight line is exact
        return _area(counts.false_positives / negatives, counts.true_positives / positives, self.summation_method)


@dataclass(frozen=True, eq=False)
class PrecisionRecallArea(ThresholdCounts):
    """Area under the curve of precision over recall; precision is 1 where nothing is predicted."""

    _: KW_ONLY
    summation_method: SummationMethod

    def result(self) -> float:
        """Return the area; NaN if there is no positive example."""
        counts = self.counts()
        positives = float(np.sum(self.positives))
        if not positives:
            return math.nan
        if self.summation_method == "careful_interpolation":
            return _interpolated_area(counts, positives)
        predicted = counts.true_positives + counts.false_positives
        precisions = np.divide(counts.true_positives, predicted, out=np.ones_like(predicted), where=predicted != 0.0)
        return _area(counts.true_positives / positives, precisions, self.summation_method)


def auc(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    num_thresholds: int = NUM_THRESHOLDS,
    *,
    curve: Curve = "ROC",
    name: str | None = None,
    summation_method: SummationMethod = "trapezoidal",
    thresholds: Sequence[float] | None = None,
) -> RocArea | PrecisionRecallArea:
    """Measure the area under a curve drawn through thresholds in [0, 1].

    Parameters
    ----------
    labels : array
        Anything but 0 is positive.
    predictions : array of the same shape
        Probabilities in [0, 1]. A NaN makes the result NaN.
    weights : array or number, optional
        As those of `mean`.
    num_thresholds : int
        So many thresholds divide [0, 1] evenly; 2 or more.
    curve : {"ROC", "PR"}
        True over false positive rate, or precision over recall.
    summation_method : {"trapezoidal", "careful_interpolation", "minoring", "majoring"}
        What lies between two points: a straight line; of precision the curve that true and false positives make which
        grow evenly (Davis and Goadrich, 2006), which a straight line overestimates; the lower point; the higher one.
    thresholds : sequence of float in [0, 1], optional
        In place of `num_thresholds`.

    Raises
    ------
    ModelFnError
        If shapes differ, a prediction or threshold lies outside [0, 1], or `curve` or `summation_method` is unknown.
    """
    curves: dict[str, type[RocArea | PrecisionRecallArea]] = {"ROC": RocArea, "PR": PrecisionRecallArea}
    if curve not in curves:
        raise argument_error("auc", f"curve is {curve!r}, expected 'ROC' or 'PR'{did_you_mean(curve, curves)}")
    methods = get_args(SummationMethod)
    if summation_method not in methods:
        near = did_you_mean(summation_method, methods)
        raise argument_error(
            "auc", f"summation_method is {summation_method!r}, expected one of {', '.join(methods)}{near}"
        )
    at = even_thresholds("auc", num_thresholds) if thresholds is None else inner_thresholds("auc", thresholds)
    buckets = bucketed("auc", labels, predictions, at, weights)
    return curves[curve](*buckets, thresholds=at, summation_method=summation_method)


def _area(x: Doubles, y: Doubles, method: SummationMethod) -> float:
    """Return the area under a curve whose x falls."""
    match method:
        case "trapezoidal" | "careful_interpolation":
            heights = (y[:-1] + y[1:]) / 2.0
        case "minoring":
            heights = np.minimum(y[:-1], y[1:])
        case "majoring":
            heights = np.maximum(y[:-1], y[1:])
    return float(np.sum((x[:-1] - x[1:]) * heights))


def _interpolated_area(counts: Counts, positives: float) -> float:
    """Return the area where true and false positives grow evenly from one threshold to the next."""
    true_positives, predicted = counts.true_positives, counts.true_positives + counts.false_positives
    more_true, more = -np.diff(true_positives), -np.diff(predicted)
    slopes = np.divide(more_true, more, out=np.zeros_like(more), where=more > 0.0)
    intercepts = true_positives[1:] - slopes * predicted[1:]
    is_ratio = (predicted[:-1] > 0.0) & (predicted[1:] > 0.0)
    ratios = np.divide(predicted[:-1], predicted[1:], out=np.ones_like(more), where=is_ratio)
    return float(np.sum(slopes * (more_true + intercepts * np.log(ratios))) / positives)
