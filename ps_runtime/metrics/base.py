"""The base of metrics: mergeable sums over examples."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.numeric import plain

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Metric(ABC):
    """Sums over examples, one per field, from which a result is computed.

    A new metric is a frozen dataclass whose fields are sums with zero defaults, and a `result`. Fields after
    ``_: KW_ONLY`` are not sums but parameters: metrics merge only if these are equal.
    """

    def merge(self, other: Self) -> Self:
        """Return the metric over the examples of both. Associative and commutative up to rounding.

        Raises
        ------
        ModelFnError
            If `other` has another class, other parameters, or arrays of another shape.
        """
        if type(other) is not type(self):
            raise ModelFnError(
                (f"a {type(self).__name__} cannot be merged with a {type(other).__name__}; return one metric per name",)
            )
        added = {}
        for name, says_what in ((f.name, f.kw_only) for f in fields(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            if says_what:
                if mine != theirs:
                    raise _cannot_merge(self, f"{name} {theirs!r}", f"{name} {mine!r}")
            elif isinstance(mine, np.ndarray) and isinstance(theirs, np.ndarray) and mine.shape != theirs.shape:
                raise _cannot_merge(self, f"shape {theirs.shape}", f"shape {mine.shape}")
            else:
                added[name] = mine + theirs
        return replace(self, **added)

    @abstractmethod
    def result(self) -> float | Doubles:
        """Return the number, or an array of them; NaN without examples."""


def zero_if_empty(part: float | Doubles, whole: float | Doubles) -> Doubles:
    """Return ``part / whole``, elementwise; 0 where `whole` is 0."""
    parts, wholes = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(parts, wholes, out=np.zeros(np.broadcast(parts, wholes).shape), where=wholes != 0.0)


def _cannot_merge(metric: Metric, got: str, expected: str) -> ModelFnError:
    return ModelFnError(
        (f"a {type(metric).__name__} of {got} cannot be merged with one of {expected}; measure every batch alike",)
    )


def argument_error(function: str, fault: str) -> ModelFnError:
    """Return the error for an invalid argument of `function`."""
    return ModelFnError((f"{function}: {fault}",))


def same_shape(function: str, labels: ArrayLike, predictions: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both as arrays; ModelFnError if their shapes differ."""
    truth, guesses = np.asarray(plain(labels)), np.asarray(plain(predictions))
    if truth.shape != guesses.shape:
        raise argument_error(
            function,
            f"expected labels and predictions of one shape, got {truth.shape} and {guesses.shape}; reshape one of them",
        )
    return truth, guesses


def doubles(function: str, labels: ArrayLike, predictions: ArrayLike) -> tuple[Doubles, Doubles]:
    """Return both as float64; ModelFnError if their shapes differ."""
    truth, guesses = same_shape(function, labels, predictions)
    return truth.astype(np.float64), guesses.astype(np.float64)


def truths(function: str, name: str, values: NDArray[Any]) -> NDArray[np.bool]:
    """Return which values are true: all but 0. ModelFnError if one is NaN."""
    if values.dtype.kind == "f" and (is_nan := np.isnan(values)).any():
        raise argument_error(function, f"{name}{_place(is_nan)} is nan, expected 0 for false, another number for true")
    return values.astype(bool)


def class_ids(function: str, name: str, values: ArrayLike, num_classes: int) -> NDArray[np.int64]:
    """Return class ids, flat; ModelFnError if one is not an integer in ``[0, num_classes)``."""
    given = np.asarray(plain(values))
    if given.dtype.kind not in "fiub":
        raise argument_error(function, f"expected integers as {name}, got {given.dtype}")
    outside = ~((given >= 0) & (given < num_classes) & (given == np.floor(given)))
    if outside.any():
        value = given[outside][0]
        raise argument_error(function, f"{name}{_place(outside)} is {value}, expected an integer in [0, {num_classes})")
    return given.astype(np.int64).ravel()


def rows_of_classes(
    function: str, labels: ArrayLike, predictions: ArrayLike
) -> tuple[Doubles, Doubles, tuple[int, ...]]:
    """Return both as float64 ``(rows, classes)``, and the shape of the rows; ModelFnError if the shapes differ."""
    truth, guesses = doubles(function, labels, predictions)
    if not truth.ndim or not truth.shape[-1]:
        raise argument_error(function, f"expected arrays (..., classes), got shape {truth.shape}")
    return truth.reshape(-1, truth.shape[-1]), guesses.reshape(-1, truth.shape[-1]), truth.shape[:-1]


def broadcast_weights(function: str, weights: ArrayLike | None, shape: tuple[int, ...]) -> Doubles:
    """Return a weight for each value of `shape`; 1 without `weights`.

    Weights are one number, or have the rank of the values with each axis of equal length or 1; a last axis of length 1
    may be missing or extra. There is no other broadcasting: ``(3,)`` with ``(3, 3)`` means the rows.

    Raises ModelFnError if they have another shape, or one of them is negative, NaN or infinite.
    """
    given = np.asarray(1.0 if weights is None else plain(weights))
    if given.dtype.kind not in "fiub":
        raise argument_error(function, f"expected numbers as weights, got {given.dtype}")
    wrong = ~((given >= 0) & (given < np.inf))
    if wrong.any():
        raise argument_error(
            function, f"weights{_place(wrong)} is {given[wrong][0]}, expected a finite number of 0 or more"
        )
    fitting = given.astype(np.float64)
    if fitting.ndim == len(shape) - 1 and fitting.ndim:
        fitting = fitting[..., np.newaxis]
    elif fitting.ndim == len(shape) + 1 and fitting.shape[-1] == 1:
        fitting = fitting[..., 0]
    lengths = zip(fitting.shape, shape, strict=False)
    if fitting.ndim and (fitting.ndim != len(shape) or any(mine not in (1, theirs) for mine, theirs in lengths)):
        raise argument_error(
            function, f"expected weights of shape {shape}, of its axes some 1, or one number; got {given.shape}"
        )
    return np.broadcast_to(fitting, shape)


def share(function: str, name: str, value: float) -> float:
    """Return a number in [0, 1]; ModelFnError for other values."""
    if not 0.0 <= value <= 1.0:
        raise argument_error(function, f"{name} is {value}, expected a number in [0, 1]")
    return float(value)


def _place(wrong: NDArray[np.bool]) -> str:
    """Return the index of the first wrong element, such as ``[3, 0]``; "" for a single number."""
    return str([int(axis[0]) for axis in np.nonzero(wrong)]) if wrong.ndim else ""


@dataclass(frozen=True)
class Sum(Metric):
    """A weighted sum; 0 without examples."""

    total: float = 0.0

    def result(self) -> float:
        """Return the sum."""
        return self.total


@dataclass(frozen=True)
class Mean(Metric):
    """A weighted mean: `total` of the weighted values divided by `count`, the sum of weights."""

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
    """A weighted mean for each element of an array that has the same shape in every batch."""

    total: float | Doubles = 0.0
    count: float | Doubles = 0.0

    def result(self) -> Doubles:
        """Return the means; NaN where the weights sum to 0."""
        total, count = np.atleast_1d(self.total), np.atleast_1d(self.count)
        means: Doubles = np.divide(total, count, out=np.full(total.shape, math.nan), where=count != 0.0)
        return means.reshape(np.shape(self.total))


def mean_of(function: str, values: Doubles, weights: ArrayLike | None) -> Mean:
    """Return the mean of the values of a metric; `function` is its name in errors."""
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
        Of the shape of `values`, where axes may have length 1 and a last axis of length 1 may be missing; or one
        number. Default: 1.
    """
    return mean_of("mean", np.asarray(plain(values)), weights)


def sum(values: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None) -> Sum:
    """Measure the sum of `values` times `weights`, which are as in `mean`."""
    return Sum(mean_of("sum", np.asarray(plain(values)), weights).total)


def mean_tensor(values: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None) -> MeanTensor:
    """Measure the mean over batches of each element of `values`, whose shape is the same in all batches."""
    numbers = np.asarray(plain(values), np.float64)
    shares = broadcast_weights("mean_tensor", weights, numbers.shape)
    return MeanTensor(numbers * shares, shares.copy())


def percentage_below(
    values: ArrayLike, threshold: float, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the share of `values` below `threshold`: a number in [0, 1], not a percentage."""
    if math.isnan(threshold):
        raise argument_error("percentage_below", "threshold is nan, expected a number")
    numbers = np.asarray(plain(values))
    below = np.where(np.isnan(numbers), math.nan, numbers < threshold)
    return mean_of("percentage_below", below, weights)
