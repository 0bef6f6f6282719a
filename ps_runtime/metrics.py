"""Streaming metrics as monoids: measured on one batch, merged over batches, read off at the end.

A `Metric` is a frozen bundle of sums. ``a.merge(b)`` is the metric of both batches; the metric without arguments, such
as ``Mean()``, is that of no batch at all, and its result is NaN. All are picklable. Values that autograd traces are
welcome: a metric holds their plain numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psflow.ps_runtime.errors import ModelFnError, did_you_mean
from psflow.ps_runtime.tracing import plain

__all__ = [
    "MajorityShare",
    "Mean",
    "Metric",
    "PrecisionRecallArea",
    "Ratio",
    "RocArea",
    "accuracy",
    "accuracy_baseline",
    "auc",
    "mean",
    "mean_absolute_error",
    "mean_squared_error",
    "precision",
    "recall",
]

NUM_THRESHOLDS = 200
_INNER_THRESHOLDS = np.arange(1, NUM_THRESHOLDS - 1) / (NUM_THRESHOLDS - 1)
"""The first threshold lies below 0 and the last above 1, so they need no place here."""

Doubles = NDArray[np.float64]
_histogram = partial(np.zeros, NUM_THRESHOLDS - 1)


@dataclass(frozen=True, eq=False)
class Metric(ABC):
    """Sums over examples, one in each field, from which a number can be read.

    A new metric is a frozen dataclass whose fields are sums with zero defaults, and a `result`.
    """

    def merge(self, other: Self) -> Self:
        """Return the metric over the examples of both. Associative and commutative up to rounding.

        Raises
        ------
        ModelFnError
            If `other` is a metric of another class.
        """
        if type(other) is not type(self):
            raise ModelFnError(
                (f"a {type(self).__name__} cannot be merged with a {type(other).__name__}; return one metric per name",)
            )
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @abstractmethod
    def result(self) -> float:
        """Return the number; NaN if there was no example."""


@dataclass(frozen=True)
class Mean(Metric):
    """A weighted mean: `total` of the weighted values over the sum of weights, `count`."""

    total: float = 0.0
    count: float = 0.0

    def result(self) -> float:
        """Return the mean."""
        return self.total / self.count if self.count else math.nan


@dataclass(frozen=True)
class MajorityShare(Mean):
    """The share of the more frequent of two classes, from the mean of labels that are 0 or 1."""

    def result(self) -> float:
        """Return the accuracy of who always predicts the more frequent class."""
        share = super().result()
        return max(share, 1.0 - share)


@dataclass(frozen=True)
class Ratio(Metric):
    """`hits` among `candidates`, out of `count` examples; 0 if there were examples, but no candidates."""

    hits: float = 0.0
    candidates: float = 0.0
    count: float = 0.0

    def result(self) -> float:
        """Return the ratio."""
        if not self.count:
            return math.nan
        return self.hits / self.candidates if self.candidates else 0.0


@dataclass(frozen=True, eq=False)
class _ThresholdCounts(Metric):
    """Weights of positive and negative examples between neighbouring thresholds of their predictions."""

    positives: Doubles = field(default_factory=_histogram)
    negatives: Doubles = field(default_factory=_histogram)

    def _above_thresholds(self) -> tuple[Doubles, Doubles]:
        """Return true and false positives for each threshold, the lowest first: two ``(NUM_THRESHOLDS,)`` arrays."""
        true_positives, false_positives = (
            np.append(np.cumsum(counts[::-1])[::-1], 0.0) for counts in (self.positives, self.negatives)
        )
        return true_positives, false_positives


@dataclass(frozen=True, eq=False)
class RocArea(_ThresholdCounts):
    """Area under the curve of true over false positive rate, by trapezoids."""

    def result(self) -> float:
        """Return the area; NaN if one of the classes has no example."""
        true_positives, false_positives = self._above_thresholds()
        if not (true_positives[0] and false_positives[0]):
            return math.nan
        area = np.trapezoid(true_positives[::-1], false_positives[::-1])
        return float(area / (true_positives[0] * false_positives[0]))


@dataclass(frozen=True, eq=False)
class PrecisionRecallArea(_ThresholdCounts):
    """Area under the curve of precision over recall, by trapezoids; precision is 1 where nothing is predicted."""

    def result(self) -> float:
        """Return the area; NaN if there is no positive example."""
        true_positives, false_positives = self._above_thresholds()
        if not true_positives[0]:
            return math.nan
        predicted = true_positives + false_positives
        precisions = np.divide(true_positives, predicted, out=np.ones_like(predicted), where=predicted != 0.0)
        return float(np.trapezoid(precisions[::-1], true_positives[::-1]) / true_positives[0])


def mean(values: ArrayLike, weights: ArrayLike | None = None) -> Mean:
    """Measure the mean of `values`.

    Parameters
    ----------
    values : array of numbers
        Of any shape.
    weights : array or number, optional
        Broadcast to the shape of `values`; 1 if not given.
    """
    numbers = np.asarray(plain(values))
    if weights is None:
        return Mean(float(np.sum(numbers, dtype=np.float64)), float(numbers.size))
    shares = _weights(weights, numbers.shape)
    return Mean(float(np.sum(numbers * shares)), float(np.sum(shares)))


def accuracy(labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None) -> Mean:
    """Measure how often `predictions` (class ids) equal `labels`; both of one shape."""
    truth, guesses = _same_shape("accuracy", labels, predictions)
    return mean(truth == guesses, weights)


def accuracy_baseline(labels: ArrayLike, weights: ArrayLike | None = None) -> MajorityShare:
    """Measure the accuracy of who always predicts the more frequent class; `labels` are 0 or 1."""
    share = mean(labels, weights)
    return MajorityShare(share.total, share.count)


def mean_squared_error(labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None) -> Mean:
    """Measure the mean of ``(prediction - label) ** 2``; both of one shape."""
    truth, guesses = _same_shape("mean_squared_error", labels, predictions)
    return mean(np.square(np.subtract(guesses, truth, dtype=np.float64)), weights)


def mean_absolute_error(labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None) -> Mean:
    """Measure the mean of ``|prediction - label|``; both of one shape."""
    truth, guesses = _same_shape("mean_absolute_error", labels, predictions)
    return mean(np.abs(np.subtract(guesses, truth, dtype=np.float64)), weights)


def precision(labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None) -> Ratio:
    """Measure the share of true labels among true predictions; anything but 0 is true. 0 if none was predicted."""
    truth, guesses = _same_shape("precision", labels, predictions)
    return _ratio(truth.astype(bool), among=guesses.astype(bool), weights=weights)


def recall(labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None) -> Ratio:
    """Measure the share of true predictions among true labels; anything but 0 is true. 0 if no label is true."""
    truth, guesses = _same_shape("recall", labels, predictions)
    return _ratio(guesses.astype(bool), among=truth.astype(bool), weights=weights)


def auc(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    curve: Literal["ROC", "PR"] = "ROC",
) -> RocArea | PrecisionRecallArea:
    """Measure the area under a curve drawn through 200 thresholds in [0, 1], by trapezoids.

    Parameters
    ----------
    labels : array
        Anything but 0 is positive.
    predictions : array of the same shape
        Probabilities in [0, 1]. A NaN makes the result NaN.
    weights : array or number, optional
        Broadcast to the shape of `labels`; 1 if not given.
    curve : {"ROC", "PR"}
        True over false positive rate, or precision over recall.

    Raises
    ------
    ModelFnError
        If shapes differ, a prediction lies outside [0, 1], or `curve` is unknown.
    """
    curves: dict[str, type[RocArea | PrecisionRecallArea]] = {"ROC": RocArea, "PR": PrecisionRecallArea}
    if curve not in curves:
        raise ModelFnError((f"auc: curve is {curve!r}, expected 'ROC' or 'PR'{did_you_mean(curve, curves)}",))
    truth, guesses = _same_shape("auc", labels, predictions)
    outside = (guesses < 0.0) | (guesses > 1.0)
    if outside.any():
        raise ModelFnError((f"auc: expected probabilities in [0, 1], got {guesses[outside][0]}",))
    shares = np.where(np.isnan(guesses), math.nan, _weights(1.0 if weights is None else weights, guesses.shape)).ravel()
    # bucket i lies above threshold i and not above threshold i + 1
    buckets = np.searchsorted(_INNER_THRESHOLDS, guesses.ravel(), side="left")
    positive = truth.astype(bool).ravel()
    positives, negatives = (
        np.bincount(buckets[chosen], shares[chosen], NUM_THRESHOLDS - 1).astype(np.float64)
        for chosen in (positive, ~positive)
    )
    return curves[curve](positives, negatives)


def _ratio(hits: NDArray[np.bool], *, among: NDArray[np.bool], weights: ArrayLike | None) -> Ratio:
    shares = _weights(1.0 if weights is None else weights, hits.shape)
    return Ratio(float(np.sum(shares[hits & among])), float(np.sum(shares[among])), float(np.sum(shares)))


def _weights(weights: ArrayLike, shape: tuple[int, ...]) -> Doubles:
    return np.broadcast_to(np.asarray(plain(weights), np.float64), shape)


def _same_shape(function: str, labels: ArrayLike, predictions: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    truth, guesses = np.asarray(plain(labels)), np.asarray(plain(predictions))
    if truth.shape != guesses.shape:
        raise ModelFnError(
            (
                f"{function}: expected labels and predictions of one shape, got {truth.shape} and {guesses.shape}; "
                "reshape one of them",
            )
        )
    return truth, guesses
