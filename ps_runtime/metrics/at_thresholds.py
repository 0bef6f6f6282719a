"""Metrics at thresholds: counts, precision, recall, and one rate at a given value of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal, assert_never

import numpy as np
from numpy.typing import ArrayLike

from psflow.ps_runtime.metrics.base import Doubles, share, zero_if_empty
from psflow.ps_runtime.metrics.thresholds import (
    MARGIN,
    NUM_THRESHOLDS,
    Counts,
    ThresholdCounts,
    bucketed,
    even_thresholds,
    given_thresholds,
)

Statistic = Literal[
    "true_positives", "false_positives", "true_negatives", "false_negatives", "precision", "recall", "specificity"
]


@dataclass(frozen=True, eq=False)
class AtThresholds(ThresholdCounts):
    """A statistic at each threshold."""

    _: KW_ONLY
    statistic: Statistic

    def result(self) -> Doubles:
        """Return a number for each threshold; a ratio is 0 where the divisor is 0, and NaN without examples."""
        is_count = self.statistic in ("true_positives", "false_positives", "true_negatives", "false_negatives")
        if math.isnan(self.weight) or (not self.weight and not is_count):
            return np.full(len(self.thresholds), math.nan)
        return _read(self.statistic, self.counts())


@dataclass(frozen=True, eq=False)
class NearestRate(ThresholdCounts):
    """`wanted` at the threshold where `given` is nearest to `value`: the first or the last such threshold."""

    _: KW_ONLY
    wanted: Statistic
    given: Statistic
    value: float
    is_last: bool

    def result(self) -> float:
        """Return the rate; NaN without examples."""
        if not self.weight > 0.0:
            return math.nan
        counts = self.counts()
        distances = np.abs(_read(self.given, counts) - self.value)
        nearest = np.flatnonzero(distances == distances.min())
        return float(_read(self.wanted, counts)[nearest[-1 if self.is_last else 0]])


@dataclass(frozen=True, eq=False)
class BestRate(ThresholdCounts):
    """The best `wanted` among the thresholds where `given` is at least `value`; 0 if there are none."""

    _: KW_ONLY
    wanted: Statistic
    given: Statistic
    value: float

    def result(self) -> float:
        """Return the rate; NaN without examples."""
        if not self.weight > 0.0:
            return math.nan
        counts = self.counts()
        rates = _read(self.wanted, counts)[_read(self.given, counts) >= self.value]
        return float(rates.max()) if rates.size else 0.0


def true_positives_at_thresholds(
    labels: ArrayLike,
    predictions: ArrayLike,
    thresholds: Sequence[float],
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> AtThresholds:
    """Count the positive examples with a prediction above each threshold."""
    return _at_thresholds("true_positives", labels, predictions, thresholds, weights)


def false_positives_at_thresholds(
    labels: ArrayLike,
    predictions: ArrayLike,
    thresholds: Sequence[float],
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> AtThresholds:
    """Count the negative examples with a prediction above each threshold."""
    return _at_thresholds("false_positives", labels, predictions, thresholds, weights)


def true_negatives_at_thresholds(
    labels: ArrayLike,
    predictions: ArrayLike,
    thresholds: Sequence[float],
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> AtThresholds:
    """Count the negative examples with a prediction not above each threshold."""
    return _at_thresholds("true_negatives", labels, predictions, thresholds, weights)


def false_negatives_at_thresholds(
    labels: ArrayLike,
    predictions: ArrayLike,
    thresholds: Sequence[float],
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> AtThresholds:
    """Count the positive examples with a prediction not above each threshold."""
    return _at_thresholds("false_negatives", labels, predictions, thresholds, weights)


def precision_at_thresholds(
    labels: ArrayLike,
    predictions: ArrayLike,
    thresholds: Sequence[float],
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> AtThresholds:
    """Measure the share of positive examples among predictions above each threshold; 0 without such predictions."""
    return _at_thresholds("precision", labels, predictions, thresholds, weights)


def recall_at_thresholds(
    labels: ArrayLike,
    predictions: ArrayLike,
    thresholds: Sequence[float],
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> AtThresholds:
    """Measure the share of predictions above each threshold among positive examples; 0 without such examples."""
    return _at_thresholds("recall", labels, predictions, thresholds, weights)


def sensitivity_at_specificity(
    labels: ArrayLike,
    predictions: ArrayLike,
    specificity: float,
    weights: ArrayLike | None = None,
    num_thresholds: int = NUM_THRESHOLDS,
    *,
    name: str | None = None,
) -> NearestRate:
    """Measure the recall at the first of evenly spaced thresholds whose specificity is nearest to the given one."""
    function = "sensitivity_at_specificity"
    at = even_thresholds(function, num_thresholds)
    buckets = bucketed(function, labels, predictions, at, weights)
    value = share(function, "specificity", specificity)
    return NearestRate(*buckets, thresholds=at, wanted="recall", given="specificity", value=value, is_last=False)


def specificity_at_sensitivity(
    labels: ArrayLike,
    predictions: ArrayLike,
    sensitivity: float,
    weights: ArrayLike | None = None,
    num_thresholds: int = NUM_THRESHOLDS,
    *,
    name: str | None = None,
) -> NearestRate:
    """Measure the specificity at the last of evenly spaced thresholds whose recall is nearest to the given one."""
    function = "specificity_at_sensitivity"
    # TensorFlow's last threshold is just below 1 here, so that a prediction of 1 is positive at each
    at = (*even_thresholds(function, num_thresholds)[:-1], 1.0 - MARGIN)
    buckets = bucketed(function, labels, predictions, at, weights)
    value = share(function, "sensitivity", sensitivity)
    return NearestRate(*buckets, thresholds=at, wanted="specificity", given="recall", value=value, is_last=True)


def precision_at_recall(
    labels: ArrayLike,
    predictions: ArrayLike,
    recall: float,
    weights: ArrayLike | None = None,
    num_thresholds: int = NUM_THRESHOLDS,
    *,
    name: str | None = None,
) -> BestRate:
    """Measure the best precision at evenly spaced thresholds with at least the given recall; 0 if there are none."""
    function = "precision_at_recall"
    at = (0.0, *even_thresholds(function, num_thresholds)[1:-1], 1.0)  # a prediction of 0 is never positive here
    buckets = bucketed(function, labels, predictions, at, weights)
    value = share(function, "recall", recall)
    return BestRate(*buckets, thresholds=at, wanted="precision", given="recall", value=value)


def recall_at_precision(
    labels: ArrayLike,
    predictions: ArrayLike,
    precision: float,
    weights: ArrayLike | None = None,
    num_thresholds: int = NUM_THRESHOLDS,
    *,
    name: str | None = None,
) -> BestRate:
    """Measure the best recall at evenly spaced thresholds with at least the given precision; 0 if there are none."""
    function = "recall_at_precision"
    at = (0.0, *even_thresholds(function, num_thresholds)[1:-1], 1.0)  # a prediction of 0 is never positive here
    buckets = bucketed(function, labels, predictions, at, weights)
    value = share(function, "precision", precision)
    return BestRate(*buckets, thresholds=at, wanted="recall", given="precision", value=value)


def _at_thresholds(
    statistic: Statistic,
    labels: ArrayLike,
    predictions: ArrayLike,
    thresholds: Sequence[float],
    weights: ArrayLike | None,
) -> AtThresholds:
    function = f"{statistic}_at_thresholds"
    at = given_thresholds(function, thresholds)
    return AtThresholds(*bucketed(function, labels, predictions, at, weights), thresholds=at, statistic=statistic)


def _read(statistic: Statistic, counts: Counts) -> Doubles:
    match statistic:
        case "true_positives" | "false_positives" | "true_negatives" | "false_negatives":
            found: Doubles = getattr(counts, statistic)
            return found
        case "precision":
            return zero_if_empty(counts.true_positives, counts.true_positives + counts.false_positives)
        case "recall":
            return zero_if_empty(counts.true_positives, counts.true_positives + counts.false_negatives)
        case "specificity":
            return zero_if_empty(counts.true_negatives, counts.true_negatives + counts.false_positives)
        case _:
            assert_never(statistic)
