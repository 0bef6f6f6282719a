"""Sums and means of values, and the metrics that are a mean of something."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from psflow.ps_runtime.metrics.arguments import argument_error, broadcast_weights
from psflow.ps_runtime.metrics.base import Doubles, Metric
from psflow.ps_runtime.tracing import plain

__all__ = ["Mean", "MeanTensor", "RootMean", "Sum", "mean", "mean_of", "mean_tensor", "percentage_below", "sum"]


@dataclass(frozen=True)
class Sum(Metric):
    """A weighted sum; 0 if there was no example."""

    total: float = 0.0

    def result(self) -> float:
        """Return the sum."""
        return self.total


@dataclass(frozen=True)
class Mean(Metric):
    """A weighted mean: `total` of the weighted values over the sum of weights, `count`."""

    total: float = 0.0
    count: float = 0.0

    def result(self) -> float:
        """Return the mean."""
        return self.total / self.count if self.count else math.nan


@dataclass(frozen=True)
class RootMean(Mean):
    """The square root of a mean."""

    def result(self) -> float:
        """Return the root."""
        return math.sqrt(super().result())


@dataclass(frozen=True, eq=False)
class MeanTensor(Metric):
    """A weighted mean for each element of an array that every batch has."""

    total: float | Doubles = 0.0
    count: float | Doubles = 0.0

    def result(self) -> Doubles:
        """Return the means; NaN where the weights sum to 0."""
        total, count = np.atleast_1d(self.total), np.atleast_1d(self.count)
        means: Doubles = np.divide(total, count, out=np.full(total.shape, math.nan), where=count != 0.0)
        return means.reshape(np.shape(self.total))


def mean_of(function: str, values: Doubles, weights: ArrayLike | None) -> Mean:
    """Return the mean of values that `function`, which errors name, has made."""
    if weights is None:
        return Mean(float(np.sum(values, dtype=np.float64)), float(values.size))
    shares = broadcast_weights(function, weights, values.shape)
    return Mean(float(np.sum(values * shares)), float(np.sum(shares)))


def mean(values: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None) -> Mean:
    """Measure the mean of `values`.

    Parameters
    ----------
    values : array of numbers
        Of any shape.
    weights : array or number, optional
        Of the shape of `values`, of its axes some 1 and the last one missing if it is; or one number. 1 if left out.
    """
    return mean_of("mean", np.asarray(plain(values)), weights)


def sum(values: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None) -> Sum:
    """Measure the sum of `values` times `weights`, which are as those of `mean`."""
    return Sum(mean_of("sum", np.asarray(plain(values)), weights).total)


def mean_tensor(values: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None) -> MeanTensor:
    """Measure the mean over batches of each element of `values`, which has one shape in all of them."""
    numbers = np.asarray(plain(values), np.float64)
    shares = broadcast_weights("mean_tensor", weights, numbers.shape)
    return MeanTensor(numbers * shares, shares.copy())


def percentage_below(
    values: ArrayLike, threshold: float, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the share of `values` that are less than `threshold`: a number in [0, 1], no percentage."""
    if math.isnan(threshold):
        raise argument_error("percentage_below", "threshold is nan, expected a number")
    numbers = np.asarray(plain(values))
    below = np.where(np.isnan(numbers), math.nan, numbers < threshold)
    return mean_of("percentage_below", below, weights)
