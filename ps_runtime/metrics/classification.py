"""Classification metrics: accuracy, precision, recall, F scores, and counts of true and false predictions."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psflow.ps_runtime.metrics.base import (
    Doubles,
    Mean,
    Metric,
    Sum,
    argument_error,
    broadcast_weights,
    class_ids,
    mean,
    mean_of,
    rows_of_classes,
    same_shape,
    truths,
    zero_if_empty,
)
from psflow.ps_runtime.numeric import plain

Truths = NDArray[np.bool]


@dataclass(frozen=True)
class MajorityShare(Mean):
    """The share of the more frequent of two classes, from the mean of labels 0 and 1."""

    def result(self) -> float:
        """Return the accuracy of always predicting the more frequent class."""
        share = super().result()
        return max(share, 1.0 - share)


@dataclass(frozen=True)
class Ratio(Metric):
    """`hits` divided by `candidates`, for `count` examples; 0 if there were examples, but no candidates."""

    hits: float = 0.0
    candidates: float = 0.0
    count: float = 0.0

    def result(self) -> float:
        """Return the ratio."""
        if not self.count:
            return math.nan
        return self.hits / self.candidates if self.candidates else 0.0


def accuracy(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure how often `predictions` (class ids) equal `labels`; both of one shape."""
    truth, guesses = same_shape("accuracy", labels, predictions)
    return mean_of("accuracy", truth == guesses, weights)


def accuracy_baseline(labels: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None) -> MajorityShare:
    """Measure the accuracy of always predicting the more frequent class; `labels` are 0 or 1."""
    share = mean(labels, weights)
    return MajorityShare(share.total, share.count)


def binary_accuracy(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    threshold: float = 0.5,
    *,
    name: str | None = None,
) -> Mean:
    """Measure how often ``prediction > threshold`` equals the label, which is 0 or 1; both of one shape."""
    truth, guesses = same_shape("binary_accuracy", labels, predictions)
    if math.isnan(threshold):
        raise argument_error("binary_accuracy", "threshold is nan, expected a number")
    matches = np.where(np.isnan(guesses), math.nan, truth == (guesses > threshold))
    return mean_of("binary_accuracy", matches, weights)


def categorical_accuracy(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure how often the largest of ``(..., classes)`` predictions is at the class of the largest label.

    Weights have the shape of `labels` without the classes.
    """
    truth, guesses, shape = rows_of_classes("categorical_accuracy", labels, predictions)
    matches = truth.argmax(axis=1) == guesses.argmax(axis=1)
    return mean_of("categorical_accuracy", matches.reshape(shape), weights)


def sparse_categorical_accuracy(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure how often the largest of ``(..., classes)`` predictions is at the class given by the label.

    Labels are class ids; they and weights have the shape of `predictions` without the classes.
    """
    function = "sparse_categorical_accuracy"
    truth, guesses = np.asarray(plain(labels)), np.asarray(plain(predictions))
    if not guesses.ndim or truth.shape != guesses.shape[:-1]:
        raise argument_error(
            function, f"expected predictions (..., classes) and labels (...), got {guesses.shape} and {truth.shape}"
        )
    ids = class_ids(function, "labels", truth, guesses.shape[-1]).reshape(truth.shape)
    return mean_of(function, guesses.argmax(axis=-1) == ids, weights)


def precision(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Ratio:
    """Measure the share of true labels among true predictions; values other than 0 are true. 0 if none is predicted."""
    truth, guesses = _truths("precision", labels, predictions)
    return _ratio("precision", truth, among=guesses, weights=weights)


def recall(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Ratio:
    """Measure the share of true predictions among true labels; values other than 0 are true. 0 without true labels."""
    truth, guesses = _truths("recall", labels, predictions)
    return _ratio("recall", guesses, among=truth, weights=weights)


def true_positives(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Sum:
    """Count the true predictions of true labels; values other than 0 are true."""
    truth, guesses = _truths("true_positives", labels, predictions)
    return _count("true_positives", truth & guesses, weights)


def true_negatives(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Sum:
    """Count the false predictions of false labels; values other than 0 are true."""
    truth, guesses = _truths("true_negatives", labels, predictions)
    return _count("true_negatives", ~truth & ~guesses, weights)


def false_positives(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Sum:
    """Count the true predictions of false labels; values other than 0 are true."""
    truth, guesses = _truths("false_positives", labels, predictions)
    return _count("false_positives", ~truth & guesses, weights)


def false_negatives(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Sum:
    """Count the false predictions of true labels; values other than 0 are true."""
    truth, guesses = _truths("false_negatives", labels, predictions)
    return _count("false_negatives", truth & ~guesses, weights)


def _truths(function: str, labels: ArrayLike, predictions: ArrayLike) -> tuple[Truths, Truths]:
    truth, guesses = same_shape(function, labels, predictions)
    return truths(function, "labels", truth), truths(function, "predictions", guesses)


def _ratio(function: str, hits: Truths, *, among: Truths, weights: ArrayLike | None) -> Ratio:
    shares = broadcast_weights(function, weights, hits.shape)
    return Ratio(float(np.sum(shares[hits & among])), float(np.sum(shares[among])), float(np.sum(shares)))


def _count(function: str, chosen: Truths, weights: ArrayLike | None) -> Sum:
    return Sum(float(np.sum(broadcast_weights(function, weights, chosen.shape)[chosen])))


Average = Literal["micro", "macro", "weighted"] | None


@dataclass(frozen=True, eq=False)
class FScore(Metric):
    """Weights of hits, of predictions and of labels of each class; with `average` micro, of all classes together."""

    hits: float | Doubles = 0.0
    predictions: float | Doubles = 0.0
    labels: float | Doubles = 0.0
    count: float = 0.0
    _: KW_ONLY
    beta: float
    average: Average

    def result(self) -> float | Doubles:
        """Return the score, or that of each class."""
        if not self.count:
            return math.nan
        precisions, recalls = zero_if_empty(self.hits, self.predictions), zero_if_empty(self.hits, self.labels)
        square = self.beta**2
        scores = (1.0 + square) * zero_if_empty(precisions * recalls, square * precisions + recalls)
        match self.average:
            case None:
                return scores
            case "micro" | "macro":
                return float(np.mean(scores))
            case "weighted":
                return float(np.sum(scores * zero_if_empty(self.labels, np.sum(self.labels))))


def fbeta_score(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    average: Average = None,
    beta: float = 1.0,
    threshold: float | None = None,
    *,
    name: str | None = None,
) -> FScore:
    """Measure ``(1 + beta^2) * precision * recall / (beta^2 * precision + recall)``.

    Parameters
    ----------
    labels : (batch, classes) array
        1 for each class that an example belongs to, else 0.
    predictions : array of the same shape
        Larger for more likely classes.
    weights : (batch,) array or number, optional
        Weights of the examples; default: 1.
    average : {"micro", "macro", "weighted"} or None
        Over all examples and classes together; the mean over classes; that mean weighted by class frequency; None: a
        number for each class.
    beta : float
        Greater than 0; values above 1 weight recall more.
    threshold : float in (0, 1], optional
        Predictions above it are positive. Default: the largest prediction of each example, unless it is 0.

    Raises
    ------
    ModelFnError
        If shapes differ, or an argument is outside its range.
    """
    return _f_score("fbeta_score", labels, predictions, weights, average, beta, threshold)


def f1_score(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    average: Average = None,
    threshold: float | None = None,
    *,
    name: str | None = None,
) -> FScore:
    """Measure the harmonic mean of precision and recall: `fbeta_score` with a `beta` of 1."""
    return _f_score("f1_score", labels, predictions, weights, average, 1.0, threshold)


def _f_score(
    function: str,
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None,
    average: Average,
    beta: float,
    threshold: float | None,
) -> FScore:
    if average not in ("micro", "macro", "weighted", None):
        raise argument_error(function, f"average is {average!r}, expected 'micro', 'macro', 'weighted' or None")
    if not 0.0 < beta < math.inf:
        raise argument_error(function, f"beta is {beta}, expected a finite number above 0")
    if threshold is not None and not 0.0 < threshold <= 1.0:
        raise argument_error(function, f"threshold is {threshold}, expected a number in (0, 1], or None")
    truth, guesses, shape = rows_of_classes(function, labels, predictions)
    if len(shape) != 1:
        raise argument_error(function, f"expected arrays (batch, classes), got shape {(*shape, truth.shape[1])}")
    shares = broadcast_weights(function, weights, truth.shape)
    if threshold is None:
        chosen = (guesses >= guesses.max(axis=1, keepdims=True)) & (np.abs(guesses) > 1e-9)
    else:
        chosen = guesses > threshold
    axis = None if average == "micro" else 0
    hits, predicted, labelled = (np.sum(values * shares, axis=axis) for values in (chosen * truth, chosen, truth))
    return FScore(hits, predicted, labelled, float(np.sum(shares)), beta=float(beta), average=average)
