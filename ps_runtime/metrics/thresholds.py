"""Counts of examples between thresholds of their predictions, and the areas under curves computed from them."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from psflow.ps_runtime.errors import did_you_mean
from psflow.ps_runtime.metrics.base import Doubles, Metric, argument_error, broadcast_weights, same_shape, truths

NUM_THRESHOLDS = 200
MARGIN = 1e-7
"""Distance of the outer thresholds from 0 and 1, so that they are below and above each probability."""


class Counts(NamedTuple):
    """Weights of examples at each threshold, each ``(thresholds,)``: a prediction above the threshold is positive."""

    true_positives: Doubles
    false_positives: Doubles
    true_negatives: Doubles
    false_negatives: Doubles


@dataclass(frozen=True, eq=False)
class ThresholdCounts(Metric):
    """Weights of positive and negative examples between neighbouring thresholds of their predictions.

    `thresholds` are in any order. Bucket i of `positives` and of `negatives` counts the examples whose predictions
    are above exactly i of them.
    """

    positives: float | Doubles = 0.0
    negatives: float | Doubles = 0.0
    _: KW_ONLY
    thresholds: tuple[float, ...]

    def counts(self) -> Counts:
        """Return the counts at each threshold, in the order of `thresholds`."""
        places = np.searchsorted(np.sort(self.thresholds), self.thresholds)
        positives, negatives = (
            np.broadcast_to(np.asarray(buckets), len(places) + 1) for buckets in (self.positives, self.negatives)
        )
        # summed from the far end, so that empty buckets are exactly 0
        true_positives, false_positives = (np.cumsum(b[::-1])[::-1][1:][places] for b in (positives, negatives))
        false_negatives, true_negatives = (np.cumsum(b)[:-1][places] for b in (positives, negatives))
        return Counts(true_positives, false_positives, true_negatives, false_negatives)

    @property
    def weight(self) -> float:
        """The weight of all examples: 0 without examples, NaN if a prediction is NaN."""
        return float(np.sum(self.positives) + np.sum(self.negatives))

    @abstractmethod
    def result(self) -> float | Doubles:
        """Return the result, computed from the counts."""


def even_thresholds(function: str, num_thresholds: int) -> tuple[float, ...]:
    """Return thresholds that divide [0, 1] evenly, the first below 0 and the last above 1.

    Raises ModelFnError if there are fewer than two.
    """
    if num_thresholds < 2:
        raise argument_error(function, f"num_thresholds is {num_thresholds}, expected 2 or more")
    return _with_ends(i / (num_thresholds - 1) for i in range(1, num_thresholds - 1))


def given_thresholds(function: str, thresholds: Sequence[float]) -> tuple[float, ...]:
    """Return `thresholds` as floats; ModelFnError if there are none, or one is NaN."""
    given = tuple(float(threshold) for threshold in thresholds)
    if not given or any(math.isnan(threshold) for threshold in given):
        raise argument_error(function, f"thresholds are {list(given)}, expected one number or more")
    return given


def inner_thresholds(function: str, thresholds: Sequence[float]) -> tuple[float, ...]:
    """Return sorted `thresholds` in [0, 1], with one below 0 added before and one above 1 after them."""
    given = sorted(given_thresholds(function, thresholds))
    if given[0] < 0.0 or given[-1] > 1.0:
        raise argument_error(function, f"thresholds are {given}, expected numbers in [0, 1]")
    return _with_ends(given)


def bucketed(
    function: str,
    labels: ArrayLike,
    predictions: ArrayLike,
    thresholds: tuple[float, ...],
    weights: ArrayLike | None,
) -> tuple[Doubles, Doubles]:
    """Return the buckets of positive and negative examples for `ThresholdCounts`.

    Raises ModelFnError if shapes differ, a label is NaN, or a prediction is outside [0, 1]; a NaN prediction makes
    results NaN.
    """
    truth, guesses = same_shape(function, labels, predictions)
    outside = (guesses < 0.0) | (guesses > 1.0)
    if outside.any():
        raise argument_error(function, f"expected probabilities in [0, 1], got {guesses[outside][0]}")
    shares = np.where(np.isnan(guesses), math.nan, broadcast_weights(function, weights, guesses.shape)).ravel()
    # in the precision of the predictions: float32(0.1) is not above 0.1
    precision = np.float32 if guesses.dtype in (np.float16, np.float32) else np.float64
    places = np.searchsorted(np.sort(np.asarray(thresholds, precision)), guesses.ravel().astype(precision), side="left")
    positive = truths(function, "labels", truth).ravel()
    positives, negatives = (
        np.bincount(places[chosen], shares[chosen], len(thresholds) + 1).astype(np.float64)
        for chosen in (positive, ~positive)
    )
    return positives, negatives


def _with_ends(inner: Iterable[float]) -> tuple[float, ...]:
    return (-MARGIN, *inner, 1.0 + MARGIN)


Curve = Literal["ROC", "PR"]
SummationMethod = Literal["trapezoidal", "careful_interpolation", "minoring", "majoring"]


@dataclass(frozen=True, eq=False)
class RocArea(ThresholdCounts):
    """Area under the curve of true over false positive rate."""

    _: KW_ONLY
    summation_method: SummationMethod

    def result(self) -> float:
        """Return the area; NaN if one of the classes has no examples."""
        counts = self.counts()
        positives, negatives = float(np.sum(self.positives)), float(np.sum(self.negatives))
        if not (positives and negatives):
            return math.nan
        # careful interpolation applies to precision; between two points of this curve a straight line is exact
        return _area(counts.false_positives / negatives, counts.true_positives / positives, self.summation_method)


@dataclass(frozen=True, eq=False)
class PrecisionRecallArea(ThresholdCounts):
    """Area under the curve of precision over recall; precision is 1 where nothing is predicted."""

    _: KW_ONLY
    summation_method: SummationMethod

    def result(self) -> float:
        """Return the area; NaN without positive examples."""
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
    """Measure the area under a curve through thresholds in [0, 1].

    Parameters
    ----------
    labels : array
        Values other than 0 are positive.
    predictions : array of the same shape
        Probabilities in [0, 1]. A NaN makes the result NaN.
    weights : array or number, optional
        As in `mean`.
    num_thresholds : int
        Number of thresholds that divide [0, 1] evenly; 2 or more.
    curve : {"ROC", "PR"}
        True over false positive rate, or precision over recall.
    summation_method : {"trapezoidal", "careful_interpolation", "minoring", "majoring"}
        The curve between two points: a straight line; for precision the curve of evenly growing true and false
        positives (Davis and Goadrich, 2006), which a straight line overestimates; the lower point; the higher point.
    thresholds : sequence of float in [0, 1], optional
        Replaces `num_thresholds`.

    Raises
    ------
    ModelFnError
        If shapes differ, a prediction or threshold is outside [0, 1], or `curve` or `summation_method` is unknown.
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
    """Return the area under a curve with descending x."""
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
