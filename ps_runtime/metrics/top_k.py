"""Precision and recall among the k classes with the largest predictions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psflow.ps_runtime.metrics.base import Doubles, Mean, argument_error, broadcast_weights, class_ids, mean_of
from psflow.ps_runtime.numeric import plain

NO_LABEL = -1
"""Padding for a row with fewer labels than another."""


class _Rows(NamedTuple):
    """Labels ``(rows, num_labels)`` and class ids ``(rows, k)``, best first."""

    labels: NDArray[np.int64]
    top: NDArray[np.int64]
    shape: tuple[int, ...]

    @property
    def is_hit(self) -> NDArray[np.bool]:
        """Which of the top classes are labels, ``(rows, k)``."""
        found: NDArray[np.bool] = (self.top[:, :, np.newaxis] == self.labels[:, np.newaxis, :]).any(axis=2)
        return found

    @property
    def is_label(self) -> NDArray[np.bool]:
        """Which labels name a class that no earlier label in their row names, ``(rows, num_labels)``."""
        num_labels = self.labels.shape[1]
        same = self.labels[:, :, np.newaxis] == self.labels[:, np.newaxis, :]
        is_repeated = (same & np.tri(num_labels, k=-1, dtype=bool)).any(axis=2)
        found: NDArray[np.bool] = (self.labels != NO_LABEL) & ~is_repeated
        return found


def precision_at_k(
    labels: ArrayLike,
    predictions: ArrayLike,
    k: int,
    class_id: int | None = None,
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> Mean:
    """Measure the share of labels among the `k` classes with the largest predictions of each row.

    Parameters
    ----------
    labels : (..., num_labels) or (...,) array of integers
        Class ids of each row, padded with -1.
    predictions : (..., num_classes) array of numbers
        Scores of the classes; among equal scores the lower class id comes first.
    k : int
        In ``[1, num_classes]``.
    class_id : int, optional
        Measure only this class.
    weights : array of the shape of rows, or number, optional
        Weights of the rows; default: 1.

    Returns
    -------
    Mean
        NaN without predictions.

    Raises
    ------
    ModelFnError
        If shapes do not fit, `k`, `class_id` or a label is outside its range, or a prediction is NaN.
    """
    return _precision("precision_at_k", _top_rows("precision_at_k", labels, predictions, k), class_id, weights)


def precision_at_top_k(
    labels: ArrayLike,
    predictions_idx: ArrayLike,
    k: int | None = None,
    class_id: int | None = None,
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> Mean:
    """Measure `precision_at_k` for ``(..., k)`` class ids that are already chosen, without duplicates in a row."""
    rows = _given_rows("precision_at_top_k", labels, predictions_idx, k)
    return _precision("precision_at_top_k", rows, class_id, weights)


def recall_at_k(
    labels: ArrayLike,
    predictions: ArrayLike,
    k: int,
    class_id: int | None = None,
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> Mean:
    """Measure the share of labels that are among the `k` classes with the largest predictions of their row.

    Parameters, errors and the order of classes are those of `precision_at_k`. NaN without labels.
    """
    return _recall("recall_at_k", _top_rows("recall_at_k", labels, predictions, k), class_id, weights)


def recall_at_top_k(
    labels: ArrayLike,
    predictions_idx: ArrayLike,
    k: int | None = None,
    class_id: int | None = None,
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> Mean:
    """Measure `recall_at_k` for ``(..., k)`` class ids that are already chosen, without duplicates in a row."""
    rows = _given_rows("recall_at_top_k", labels, predictions_idx, k)
    return _recall("recall_at_top_k", rows, class_id, weights)


def average_precision_at_k(
    labels: ArrayLike,
    predictions: ArrayLike,
    k: int,
    weights: ArrayLike | None = None,
    *,
    name: str | None = None,
) -> Mean:
    """Measure the mean over rows of average precision: of the precision at each position in the top `k` with a label.

    Labels, predictions, `k` and weights are as in `precision_at_k`. NaN if a row has no label.
    """
    function = "average_precision_at_k"
    rows = _top_rows(function, labels, predictions, k)
    is_hit = rows.is_hit
    precisions = np.cumsum(is_hit, axis=1) / np.arange(1, k + 1)
    num_relevant = np.minimum(rows.is_label.sum(axis=1), k)
    with np.errstate(invalid="ignore"):
        averages = (precisions * is_hit).sum(axis=1) / num_relevant
    return mean_of(function, averages.reshape(rows.shape), weights)


sparse_precision_at_k = precision_at_k
sparse_average_precision_at_k = average_precision_at_k


def sparse_top_k_categorical_accuracy(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    k: int = 5,
    *,
    name: str | None = None,
) -> Mean:
    """Measure how often the label, a class id, is among the `k` largest of ``(..., classes)`` predictions."""
    return _top_k_accuracy("sparse_top_k_categorical_accuracy", labels, predictions, weights, k)


def top_k_categorical_accuracy(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    k: int = 5,
    *,
    name: str | None = None,
) -> Mean:
    """Measure how often the class of the largest of ``(..., classes)`` labels is among the `k` largest predictions."""
    function = "top_k_categorical_accuracy"
    truth = np.asarray(plain(labels))
    if truth.shape != np.shape(plain(predictions)) or not truth.ndim:
        raise argument_error(
            function,
            f"expected labels and predictions of one shape (..., classes), got {truth.shape} and "
            f"{np.shape(plain(predictions))}",
        )
    return _top_k_accuracy(function, truth.argmax(axis=-1), predictions, weights, k)


def _precision(function: str, rows: _Rows, class_id: int | None, weights: ArrayLike | None) -> Mean:
    is_counted = _of_class(function, rows.top, class_id)
    return _share(function, rows.is_hit & is_counted, is_counted, rows.shape, weights)


def _recall(function: str, rows: _Rows, class_id: int | None, weights: ArrayLike | None) -> Mean:
    is_hit = rows.is_hit & _of_class(function, rows.top, class_id)
    is_label = rows.is_label & _of_class(function, rows.labels, class_id)
    return _share(function, is_hit, is_label, rows.shape, weights)


def _share(
    function: str, hits: NDArray[np.bool], of: NDArray[np.bool], shape: tuple[int, ...], weights: ArrayLike | None
) -> Mean:
    shares: Doubles = broadcast_weights(function, weights, shape).ravel()
    return Mean(float(shares @ hits.sum(axis=1)), float(shares @ of.sum(axis=1)))


def _of_class(function: str, ids: NDArray[np.int64], class_id: int | None) -> NDArray[np.bool]:
    if class_id is None:
        return np.ones(ids.shape, bool)
    if class_id < 0:
        raise argument_error(function, f"class_id is {class_id}, expected 0 or more")
    chosen: NDArray[np.bool] = ids == class_id
    return chosen


def _top_k_accuracy(
    function: str, labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None, k: int
) -> Mean:
    guesses = np.asarray(plain(predictions))
    truth = np.asarray(plain(labels))
    if not guesses.ndim or truth.shape != guesses.shape[:-1]:
        raise argument_error(
            function, f"expected predictions (..., classes) and labels (...), got {guesses.shape} and {truth.shape}"
        )
    ids = class_ids(function, "labels", truth, guesses.shape[-1])
    is_hit = (_top(function, guesses, k) == ids[:, np.newaxis]).any(axis=1)
    return mean_of(function, is_hit.reshape(truth.shape), weights)


def _top_rows(function: str, labels: ArrayLike, predictions: ArrayLike, k: int) -> _Rows:
    guesses = np.asarray(plain(predictions))
    if not guesses.ndim:
        raise argument_error(function, "expected predictions (..., num_classes), got a single number")
    return _rows(function, labels, _top(function, guesses, k), guesses.shape, guesses.shape[-1])


def _given_rows(function: str, labels: ArrayLike, predictions_idx: ArrayLike, k: int | None) -> _Rows:
    given = np.asarray(plain(predictions_idx))
    if not given.ndim:
        raise argument_error(function, "expected predictions_idx (..., k), got a single number")
    if k is not None and given.shape[-1] != k:
        raise argument_error(function, f"k is {k}, but predictions_idx has shape {given.shape}")
    top = class_ids(function, "predictions_idx", given, np.iinfo(np.int64).max).reshape(-1, given.shape[-1])
    ordered = np.sort(top, axis=1)
    is_repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if is_repeated.any():
        row = int(np.argmax(is_repeated))
        raise argument_error(function, f"predictions_idx names a class twice in row {row}: {top[row].tolist()}")
    return _rows(function, labels, top, given.shape, np.iinfo(np.int64).max - 1)


def _rows(function: str, labels: ArrayLike, top: NDArray[np.int64], shape: tuple[int, ...], num_classes: int) -> _Rows:
    given = np.asarray(plain(labels))
    if given.ndim == len(shape) - 1:
        given = given[..., np.newaxis]
    if given.ndim != len(shape) or given.shape[:-1] != shape[:-1]:
        raise argument_error(
            function,
            f"expected labels of shape {shape[:-1]}, or that and the number of labels, beside predictions of shape "
            f"{shape}; got {np.shape(labels)}",
        )
    if given.dtype.kind not in "iu":
        raise argument_error(function, f"expected integers as labels, got {given.dtype}")
    outside = (given < NO_LABEL) | (given >= num_classes)
    if outside.any():
        place = [int(axis[0]) for axis in np.nonzero(outside)]
        raise argument_error(
            function,
            f"labels{place} is {given[outside][0]}, expected an integer in [0, {num_classes}), or -1 for no label",
        )
    return _Rows(given.astype(np.int64).reshape(-1, given.shape[-1]), top, shape[:-1])


def _top(function: str, predictions: NDArray[np.number], k: int) -> NDArray[np.int64]:
    """Return the ids of the `k` largest of each row, best first, of shape ``(rows, k)``."""
    num_classes = predictions.shape[-1]
    if not 1 <= k <= num_classes:
        raise argument_error(function, f"k is {k}, expected an integer in [1, {num_classes}], of {num_classes} classes")
    if predictions.dtype.kind == "f" and np.isnan(predictions).any():
        raise argument_error(function, "a prediction is nan, expected numbers")
    rows = predictions.reshape(-1, num_classes).astype(np.float64)
    return np.argsort(-rows, axis=1, kind="stable")[:, :k]
