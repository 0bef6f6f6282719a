"""Examples counted between thresholds of their predictions: metrics of thresholds and of curves are read off these."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from psflow.ps_runtime.metrics.arguments import argument_error, broadcast_weights, same_shape, truths
from psflow.ps_runtime.metrics.base import Doubles, Metric

__all__ = [
    "MARGIN",
    "NUM_THRESHOLDS",
    "Counts",
    "ThresholdCounts",
    "bucketed",
    "even_thresholds",
    "given_thresholds",
    "inner_thresholds",
]

NUM_THRESHOLDS = 200
MARGIN = 1e-7
"""How far the outer thresholds lie beyond 0 and 1, so that they are below and above each probability."""


class Counts(NamedTuple):
    """Weights of examples at each threshold, each ``(thresholds,)``: a prediction above the threshold is positive."""

    true_positives: Doubles
    false_positives: Doubles
    true_negatives: Doubles
    false_negatives: Doubles


@dataclass(frozen=True, eq=False)
class ThresholdCounts(Metric):
    """Weights of positive and negative examples between neighbouring thresholds of their predictions.

    `thresholds` are in any order. Bucket i of `positives` and of `negatives` has the examples whose predictions lie
    above just i of them.
    """

    positives: float | Doubles = 0.0
    negatives: float | Doubles = 0.0
    _: KW_ONLY
    thresholds: tuple[float, ...]

    def counts(self) -> Counts:
        """Return what the examples are at each threshold, in the order of `thresholds`."""
        places = np.searchsorted(np.sort(self.thresholds), self.thresholds)
        positives, negatives = (
            np.broadcast_to(np.asarray(buckets), len(places) + 1) for buckets in (self.positives, self.negatives)
        )
        # summed from the far end, so that no rounding is left where there is nothing
        true_positives, false_positives = (np.cumsum(b[::-1])[::-1][1:][places] for b in (positives, negatives))
        false_negatives, true_negatives = (np.cumsum(b)[:-1][places] for b in (positives, negatives))
        return Counts(true_positives, false_positives, true_negatives, false_negatives)

    @property
    def weight(self) -> float:
        """The weight of all examples: 0 if there was none, NaN if a prediction is NaN."""
        return float(np.sum(self.positives) + np.sum(self.negatives))

    @abstractmethod
    def result(self) -> float | Doubles:
        """Return what comes of the counts."""


def even_thresholds(function: str, num_thresholds: int) -> tuple[float, ...]:
    """Return thresholds that divide [0, 1] evenly, the first below 0 and the last above 1.

    Raises
    ------
    ModelFnError
        If there are less than two.
    """
    if num_thresholds < 2:
        raise argument_error(function, f"num_thresholds is {num_thresholds}, expected 2 or more")
    return _with_ends(i / (num_thresholds - 1) for i in range(1, num_thresholds - 1))


def given_thresholds(function: str, thresholds: Sequence[float]) -> tuple[float, ...]:
    """Return `thresholds` as floats; ModelFnError if there is none, or one is NaN."""
    given = tuple(float(threshold) for threshold in thresholds)
    if not given or any(math.isnan(threshold) for threshold in given):
        raise argument_error(function, f"thresholds are {list(given)}, expected one number or more")
    return given


def inner_thresholds(function: str, thresholds: Sequence[float]) -> tuple[float, ...]:
    """Return sorted `thresholds` in [0, 1] with one below 0 before and one above 1 after them."""
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
    """Return the buckets of positive and negative examples, as `ThresholdCounts` has them.

    Raises
    ------
    ModelFnError
        If shapes differ, a label is NaN, or a prediction lies outside [0, 1]; one that is NaN makes results NaN.
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
