"""F scores: precision and recall of classes as one number."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from psflow.ps_runtime.metrics.arguments import argument_error, broadcast_weights, rows_of_classes
from psflow.ps_runtime.metrics.base import Doubles, Metric, zero_if_empty

__all__ = ["FScore", "f1_score", "fbeta_score"]

Average = Literal["micro", "macro", "weighted"] | None


@dataclass(frozen=True, eq=False)
class FScore(Metric):
    """Weights of right predictions, of predictions and of labels of each class; where `average` is micro, of all."""

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
        Larger for classes that are more likely.
    weights : (batch,) array or number, optional
        Of examples; 1 if left out.
    average : {"micro", "macro", "weighted"} or None
        Over all examples and classes together; the mean over classes; that weighted by how frequent they are; None:
        a number for each class.
    beta : float
        More than 0; above 1, recall weighs more.
    threshold : float in (0, 1], optional
        Predictions above it are positive. Left out: the largest of each example is, unless it is 0.

    Raises
    ------
    ModelFnError
        If shapes differ, or an argument is not one of those above.
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
