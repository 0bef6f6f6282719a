"""Metrics computed for each class, then averaged: accuracy, intersection over union."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import ArrayLike

from psflow.ps_runtime.metrics.base import (
    Doubles,
    Metric,
    argument_error,
    broadcast_weights,
    class_ids,
    rows_of_classes,
    same_shape,
    zero_if_empty,
)


@dataclass(frozen=True, eq=False)
class PerClassAccuracy(Metric):
    """Weights of correct examples, and of all examples, of each class."""

    hits: float | Doubles = 0.0
    labels: float | Doubles = 0.0

    def result(self) -> float:
        """Return the mean accuracy over classes; that of a class without examples is 0."""
        if not np.any(self.labels):
            return math.nan
        return float(np.mean(zero_if_empty(self.hits, self.labels)))


@dataclass(frozen=True, eq=False)
class IntersectionOverUnion(Metric):
    """Weights of correct examples, of labels and of predictions of each class."""

    hits: float | Doubles = 0.0
    labels: float | Doubles = 0.0
    predictions: float | Doubles = 0.0
    _: KW_ONLY
    target_class_ids: tuple[int, ...]

    def result(self) -> float:
        """Return the mean over the target classes with examples; 0 without such classes."""
        if not np.any(self.labels):
            return math.nan
        targets = list(self.target_class_ids)
        hits, labels, predictions = (np.asarray(sums)[targets] for sums in (self.hits, self.labels, self.predictions))
        unions = labels + predictions - hits
        num_seen = np.count_nonzero(unions)
        return float(np.sum(zero_if_empty(hits, unions)) / num_seen) if num_seen else 0.0


def mean_per_class_accuracy(
    labels: ArrayLike,
    predictions: ArrayLike,
    num_classes: int,
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> PerClassAccuracy:
    """Measure the mean over all classes of the share of correct `predictions` (class ids); both of one shape."""
    sums = _per_class("mean_per_class_accuracy", labels, predictions, num_classes, weights)
    return PerClassAccuracy(sums[0], sums[1])


def mean_iou(
    labels: ArrayLike,
    predictions: ArrayLike,
    num_classes: int,
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> IntersectionOverUnion:
    """Measure the mean over classes of intersection over union of `labels` and `predictions` (class ids)."""
    return _iou("mean_iou", labels, predictions, num_classes, range(num_classes), weights)


def iou(
    labels: ArrayLike,
    predictions: ArrayLike,
    num_classes: int,
    target_class_ids: Sequence[int],
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> IntersectionOverUnion:
    """Measure the mean over some classes of intersection over union of `labels` and `predictions` (class ids)."""
    return _iou("iou", labels, predictions, num_classes, target_class_ids, weights)


def binary_iou(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    target_class_ids: Sequence[int] = (0, 1),
    threshold: float = 0.5,
    *,
    name: str | None = None,
) -> IntersectionOverUnion:
    """Measure `iou` of two classes: 1 where ``prediction >= threshold``, else 0."""
    guesses = np.asarray(predictions)
    if np.isnan(guesses).any() or math.isnan(threshold):
        raise argument_error("binary_iou", "a prediction or the threshold is nan, expected numbers")
    return _iou("binary_iou", labels, guesses >= threshold, 2, target_class_ids, weights)


def one_hot_iou(
    labels: ArrayLike,
    predictions: ArrayLike,
    num_classes: int,
    target_class_ids: Sequence[int],
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> IntersectionOverUnion:
    """Measure `iou` of the classes with the largest of ``(..., num_classes)`` labels and of predictions."""
    return _one_hot_iou("one_hot_iou", labels, predictions, num_classes, target_class_ids, weights)


def one_hot_mean_iou(
    labels: ArrayLike,
    predictions: ArrayLike,
    num_classes: int,
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> IntersectionOverUnion:
    """Measure `mean_iou` of the classes with the largest of ``(..., num_classes)`` labels and of predictions."""
    return _one_hot_iou("one_hot_mean_iou", labels, predictions, num_classes, range(num_classes), weights)


def _one_hot_iou(
    function: str,
    labels: ArrayLike,
    predictions: ArrayLike,
    num_classes: int,
    target_class_ids: Sequence[int],
    weights: ArrayLike | None,
) -> IntersectionOverUnion:
    truth, guesses, shape = rows_of_classes(function, labels, predictions)
    if truth.shape[1] != num_classes:
        raise argument_error(function, f"expected arrays (..., {num_classes}), got shape {(*shape, truth.shape[1])}")
    true_ids, guessed_ids = (values.argmax(axis=1).reshape(shape) for values in (truth, guesses))
    return _iou(function, true_ids, guessed_ids, num_classes, target_class_ids, weights)


def _iou(
    function: str,
    labels: ArrayLike,
    predictions: ArrayLike,
    num_classes: int,
    target_class_ids: Sequence[int],
    weights: ArrayLike | None,
) -> IntersectionOverUnion:
    sums = _per_class(function, labels, predictions, num_classes, weights)
    targets = tuple(int(target) for target in target_class_ids)
    if not targets or any(not 0 <= target < num_classes for target in targets):
        raise argument_error(function, f"target_class_ids are {list(targets)}, expected some of [0, {num_classes})")
    return IntersectionOverUnion(*sums, target_class_ids=targets)


def _per_class(
    function: str, labels: ArrayLike, predictions: ArrayLike, num_classes: int, weights: ArrayLike | None
) -> tuple[Doubles, Doubles, Doubles]:
    """Return the weights of correct examples, of labels and of predictions of each class."""
    if num_classes < 1:
        raise argument_error(function, f"num_classes is {num_classes}, expected 1 or more")
    truth, guesses = same_shape(function, labels, predictions)
    shares = broadcast_weights(function, weights, truth.shape).ravel()
    true_ids = class_ids(function, "labels", truth, num_classes)
    guessed_ids = class_ids(function, "predictions", guesses, num_classes)
    is_hit = true_ids == guessed_ids
    hits, labelled, predicted = (
        np.bincount(ids, some, num_classes).astype(np.float64)
        for ids, some in ((true_ids, shares * is_hit), (true_ids, shares), (guessed_ids, shares))
    )
    return hits, labelled, predicted
