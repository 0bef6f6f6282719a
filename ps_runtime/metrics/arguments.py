"""What a metric is given, checked: shapes, weights, class ids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.metrics.base import Doubles
from psflow.ps_runtime.tracing import plain

__all__ = [
    "argument_error",
    "broadcast_weights",
    "class_ids",
    "doubles",
    "rows_of_classes",
    "same_shape",
    "share",
    "truths",
]


def argument_error(function: str, fault: str) -> ModelFnError:
    """Return the error that says what is wrong with an argument of `function`."""
    return ModelFnError((f"{function}: {fault}",))


def same_shape(function: str, labels: ArrayLike, predictions: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both as arrays; ModelFnError unless they have one shape."""
    truth, guesses = np.asarray(plain(labels)), np.asarray(plain(predictions))
    if truth.shape != guesses.shape:
        raise argument_error(
            function,
            f"expected labels and predictions of one shape, got {truth.shape} and {guesses.shape}; reshape one of them",
        )
    return truth, guesses


def doubles(function: str, labels: ArrayLike, predictions: ArrayLike) -> tuple[Doubles, Doubles]:
    """Return both as float64; ModelFnError unless they have one shape."""
    truth, guesses = same_shape(function, labels, predictions)
    return truth.astype(np.float64), guesses.astype(np.float64)


def truths(function: str, name: str, values: NDArray[Any]) -> NDArray[np.bool]:
    """Return which values are true: all but 0. ModelFnError if one is NaN."""
    if values.dtype.kind == "f" and (is_nan := np.isnan(values)).any():
        raise argument_error(function, f"{name}{_place(is_nan)} is nan, expected 0 for false, another number for true")
    return values.astype(bool)


def class_ids(function: str, name: str, values: ArrayLike, num_classes: int) -> NDArray[np.int64]:
    """Return class ids, flat; ModelFnError if one is no integer in ``[0, num_classes)``."""
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
    """Return both as float64 of shape ``(rows, classes)``, and the shape of the rows; ModelFnError unless alike."""
    truth, guesses = doubles(function, labels, predictions)
    if not truth.ndim or not truth.shape[-1]:
        raise argument_error(function, f"expected arrays (..., classes), got shape {truth.shape}")
    return truth.reshape(-1, truth.shape[-1]), guesses.reshape(-1, truth.shape[-1]), truth.shape[:-1]


def broadcast_weights(function: str, weights: ArrayLike | None, shape: tuple[int, ...]) -> Doubles:
    """Return a weight for each of the values of `shape`; 1 without `weights`.

    Weights are one number, or have the rank of the values with each axis as long as theirs or 1; one axis of length 1
    at the end may be missing, or be too many. They do not broadcast otherwise: ``(3,)`` beside ``(3, 3)`` means the
    rows.

    Raises
    ------
    ModelFnError
        If they have another shape, or one of them is negative, NaN or infinite.
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
    """Return a number in [0, 1]; ModelFnError if it is none."""
    if not 0.0 <= value <= 1.0:
        raise argument_error(function, f"{name} is {value}, expected a number in [0, 1]")
    return float(value)


def _place(wrong: NDArray[np.bool]) -> str:
    """Return the index of the first that is wrong, such as ``[3, 0]``; nothing for a single number."""
    return str([int(axis[0]) for axis in np.nonzero(wrong)]) if wrong.ndim else ""
