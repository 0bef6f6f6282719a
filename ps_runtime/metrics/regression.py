"""Regression metrics: distances of predictions from labels."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psflow.ps_runtime.errors import did_you_mean
from psflow.ps_runtime.metrics.base import (
    Doubles,
    Mean,
    Metric,
    RootMean,
    argument_error,
    broadcast_weights,
    doubles,
    mean_of,
)
from psflow.ps_runtime.numeric import plain

EPSILON = 1e-7
"""TensorFlow's lower bound of divisors and arguments of logarithms."""

ClassAggregation = Literal["uniform_average", "variance_weighted_average"] | None


@dataclass(frozen=True)
class CosineDistance(Mean):
    """1 minus the mean of cosines."""

    def result(self) -> float:
        """Return the distance."""
        return 1.0 - super().result()


@dataclass(frozen=True, eq=False)
class R2Score(Metric):
    """1 minus the squared error divided by the variance of labels, of each column."""

    squares: float | Doubles = 0.0
    total: float | Doubles = 0.0
    errors: float | Doubles = 0.0
    count: float | Doubles = 0.0
    _: KW_ONLY
    class_aggregation: ClassAggregation

    def result(self) -> float | Doubles:
        """Return the score, or that of each column; 0 for a column whose labels are all equal."""
        if not np.any(self.count):
            return math.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            variances = np.asarray(self.squares - self.total * (self.total / np.asarray(self.count)))
            scores = 1.0 - np.asarray(self.errors) / variances
        scores = np.where(np.isinf(scores), 0.0, scores)
        match self.class_aggregation:
            case None:
                return scores
            case "uniform_average":
                return float(np.mean(scores))
            case "variance_weighted_average":
                return float(np.sum(variances * scores) / np.sum(variances))


def mean_squared_error(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the mean of ``(prediction - label) ** 2``; both of one shape."""
    truth, guesses = doubles("mean_squared_error", labels, predictions)
    return mean_of("mean_squared_error", np.square(guesses - truth), weights)


def root_mean_squared_error(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> RootMean:
    """Measure the square root of the mean of ``(prediction - label) ** 2``; both of one shape."""
    truth, guesses = doubles("root_mean_squared_error", labels, predictions)
    squares = mean_of("root_mean_squared_error", np.square(guesses - truth), weights)
    return RootMean(squares.total, squares.count)


def mean_absolute_error(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the mean of ``|prediction - label|``; both of one shape."""
    truth, guesses = doubles("mean_absolute_error", labels, predictions)
    return mean_of("mean_absolute_error", np.abs(guesses - truth), weights)


def mean_relative_error(
    labels: ArrayLike,
    predictions: ArrayLike,
    normalizer: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> Mean:
    """Measure the mean of ``|prediction - label| / normalizer``, 0 where `normalizer` is 0; all of one shape."""
    function = "mean_relative_error"
    truth, guesses = doubles(function, labels, predictions)
    scale = np.asarray(plain(normalizer), np.float64)
    if scale.shape != truth.shape:
        raise argument_error(
            function, f"expected a normalizer of shape {truth.shape}, that of labels, got {scale.shape}"
        )
    errors = np.divide(np.abs(truth - guesses), scale, out=np.zeros(truth.shape), where=scale != 0.0)
    return mean_of(function, errors, weights)


def mean_absolute_percentage_error(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the mean of ``100 * |prediction - label| / max(|label|, 1e-7)``; both of one shape."""
    function = "mean_absolute_percentage_error"
    truth, guesses = doubles(function, labels, predictions)
    return mean_of(function, 100.0 * np.abs(truth - guesses) / np.maximum(np.abs(truth), EPSILON), weights)


def mean_squared_logarithmic_error(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the mean of ``(log(1 + prediction) - log(1 + label)) ** 2``; both of one shape, negatives count as 0."""
    function = "mean_squared_logarithmic_error"
    truth, guesses = (np.log1p(np.maximum(values, EPSILON)) for values in doubles(function, labels, predictions))
    return mean_of(function, np.square(guesses - truth), weights)


def log_cosh_error(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the mean of ``log(cosh(prediction - label))``; both of one shape."""
    truth, guesses = doubles("log_cosh_error", labels, predictions)
    return mean_of("log_cosh_error", np.logaddexp(guesses - truth, truth - guesses) - math.log(2.0), weights)


def cosine_similarity(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    axis: int = -1,
    *,
    name: str | None = None,
) -> Mean:
    """Measure the mean cosine of the angle between vectors along `axis`; both of one shape."""
    function = "cosine_similarity"
    truth, guesses = doubles(function, labels, predictions)
    _check_axis(function, "axis", axis, truth.ndim)
    units = [
        values / np.sqrt(np.maximum(np.sum(np.square(values), axis=axis, keepdims=True), 1e-12))
        for values in (truth, guesses)
    ]
    return mean_of(function, np.sum(units[0] * units[1], axis=axis), weights)


def mean_cosine_distance(
    labels: ArrayLike,
    predictions: ArrayLike,
    dim: int,
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> CosineDistance:
    """Measure 1 minus the mean cosine between unit vectors along `dim`; both of one shape.

    Weights have the shape of `labels` with `dim` of length 1.
    """
    function = "mean_cosine_distance"
    truth, guesses = doubles(function, labels, predictions)
    _check_axis(function, "dim", dim, truth.ndim)
    cosines = mean_of(function, np.sum(truth * guesses, axis=dim, keepdims=True), weights)
    return CosineDistance(cosines.total, cosines.count)


def r2_score(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    class_aggregation: ClassAggregation = "uniform_average",
    *,
    name: str | None = None,
) -> R2Score:
    """Measure the share of the variance of labels that predictions explain.

    Parameters
    ----------
    labels, predictions : (batch, columns) arrays
        Numbers; ``(batch,)`` is one column, on either side.
    weights : (batch,) array or number, optional
        Weights of the rows; default: 1.
    class_aggregation : {"uniform_average", "variance_weighted_average"} or None
        The mean over columns, equally weighted or by the variances of their labels; None: a number for each column.

    Raises
    ------
    ModelFnError
        If shapes differ, or `class_aggregation` is unknown.
    """
    known = ("uniform_average", "variance_weighted_average", None)
    if class_aggregation not in known:
        near = did_you_mean(str(class_aggregation), [str(one) for one in known])
        raise argument_error("r2_score", f"class_aggregation is {class_aggregation!r}, expected one of {known}{near}")
    truth, guesses = doubles("r2_score", *(_with_columns(values) for values in (labels, predictions)))
    if truth.ndim != 2:
        raise argument_error("r2_score", f"expected arrays (batch, columns), got shape {truth.shape}")
    shares = broadcast_weights("r2_score", weights, truth.shape)
    squares, total, errors, count = (
        np.sum(values * shares, axis=0)
        for values in (np.square(truth), truth, np.square(truth - guesses), np.ones(truth.shape))
    )
    return R2Score(squares, total, errors, count, class_aggregation=class_aggregation)


def _with_columns(values: ArrayLike) -> NDArray[Any]:
    """Return ``(batch,)`` as ``(batch, 1)``, other shapes unchanged."""
    array = np.asarray(plain(values))
    return array[:, np.newaxis] if array.ndim == 1 else array


def _check_axis(function: str, name: str, axis: int, ndim: int) -> None:
    if not -ndim <= axis < ndim:
        raise argument_error(function, f"{name} is {axis}, but labels and predictions have rank {ndim}")
