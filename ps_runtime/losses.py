"""Implements losses with their gradients: pure functions of a batch that return ``(mean loss, gradient)``.

The gradient has the shape and dtype of its argument and is that of the *mean* loss, so it needs no further scaling.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import LabelError, ModelFnError

__all__ = [
    "FloatArray",
    "Reduction",
    "check_class_ids",
    "logistic",
    "mean_squared_error",
    "sigmoid_cross_entropy",
    "softmax",
    "softmax_cross_entropy",
]

FloatArray = NDArray[np.floating[Any]]

MAX_SHORT = 64
"""Row length up to which numpy finds the maximum faster in the columns of the transposed rows."""


class Reduction(StrEnum):
    """Reduces the losses of a batch to one number: their weighted sum, and its divisor."""

    SUM = "sum"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
    MEAN = "mean"
    SUM_BY_NONZERO_WEIGHTS = "sum_by_nonzero_weights"

    def of_mean(self, weights: NDArray[Any] | None, num_examples: int, size: int) -> float:
        """Return the factor for a weighted sum that is divided by `size`.

        Parameters
        ----------
        weights : (batch,) numbers or None
            Of the examples; None: 1 each.
        num_examples : int
            Of the batch.
        size : int
            Losses of the batch: one or more of each example.

        Returns
        -------
        float
            0 where the divisor would be 0, as TensorFlow has it.

        Examples
        --------
        >>> weights = np.array([3.0, 0.0, 1.0])
        >>> [each.of_mean(weights, 3, 3) for each in (Reduction.SUM, Reduction.MEAN, Reduction.SUM_BY_NONZERO_WEIGHTS)]
        [3.0, 0.75, 1.5]
        """
        match self:
            case Reduction.SUM:
                return float(size)
            case Reduction.SUM_OVER_BATCH_SIZE:
                return 1.0
            case Reduction.MEAN:
                share = num_examples if weights is None else float(np.sum(weights, dtype=np.float64))
            case Reduction.SUM_BY_NONZERO_WEIGHTS:
                share = num_examples if weights is None else int(np.count_nonzero(weights))
            case _:
                assert_never(self)
        return num_examples / share if share else 0.0


def check_class_ids(class_ids: NDArray[np.integer[Any]], num_classes: int, where: str = "the batch") -> None:
    """Refuse integers outside [0, num_classes).

    Parameters
    ----------
    class_ids : (rows,) integers
        Labels, one for each row.
    num_classes : int
        At least 1.
    where : str
        What the rows are rows of, for the error.

    Raises
    ------
    LabelError
        Names the first such row and its value.
    """
    if not class_ids.size or (class_ids.min() >= 0 and class_ids.max() < num_classes):
        return
    row = int(np.argmax((class_ids < 0) | (class_ids >= num_classes)))
    raise LabelError(row, where, f"is {class_ids[row]}, expected an integer in [0, {num_classes})")


def logistic(logits: FloatArray) -> FloatArray:
    """Return ``1 / (1 + exp(-logits))`` of an array of any shape, newly allocated.

    `logits` are floats of numpy: where ``minimize`` traces model_fn, use ``autograd.numpy`` instead.

    Examples
    --------
    >>> logistic(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    decay = np.exp(-np.abs(logits))
    shares: FloatArray = np.where(logits >= 0.0, 1.0, decay).astype(logits.dtype, copy=False)
    shares /= decay + 1.0
    return shares


def softmax(logits: FloatArray) -> FloatArray:
    """Return ``exp(logits) / sum(exp(logits))`` of each row of a ``(batch, classes)`` array, newly allocated.

    `logits` are floats of numpy: where ``minimize`` traces model_fn, use ``autograd.numpy`` instead.

    Examples
    --------
    >>> softmax(np.array([[0.0, 0.0], [1000.0, 0.0]]))
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    probabilities: FloatArray = logits - _row_max(logits)[:, np.newaxis]
    np.exp(probabilities, out=probabilities)
    probabilities /= np.einsum("ij->i", probabilities)[:, np.newaxis]  # the sum of short rows, in a third of the time
    return probabilities


def softmax_cross_entropy(
    labels: NDArray[np.integer[Any]], logits: FloatArray, weights: NDArray[Any] | None = None
) -> tuple[float, FloatArray]:
    """Return the mean of ``-weight * log softmax(logits)[label]`` and its gradient with respect to `logits`.

    Parameters
    ----------
    labels : (batch,) integers in [0, num_classes)
        Class of each example.
    logits : (batch, num_classes) floats
        Unnormalized log probability of each class.
    weights : (batch,) numbers, optional
        1 each if left out. The divisor is the number of examples, whatever they weigh.

    Returns
    -------
    loss : float
        Mean over the batch; NaN for an empty batch.
    gradient : (batch, num_classes) array of the dtype of `logits`
        ``weights * (softmax(logits) - one_hot(labels)) / batch``.

    Raises
    ------
    ModelFnError
        If the shapes do not fit, or `labels` are not integers.
    InputError
        If a label lies outside [0, num_classes); names the first such row of the batch.

    Examples
    --------
    >>> loss, gradient = softmax_cross_entropy(np.array([0]), np.array([[0.0, 0.0]]))
    >>> round(loss, 4), gradient
    (0.6931, array([[-0.5,  0.5]]))
    """
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise _shape_error("softmax_cross_entropy", "labels (batch,) and logits (batch, num_classes)", labels, logits)
    if labels.dtype.kind not in "iu":
        raise ModelFnError((f"softmax_cross_entropy: expected integer labels, got {labels.dtype}; convert them",))
    batch, num_classes = logits.shape
    if not batch:
        return math.nan, np.zeros_like(logits)
    check_class_ids(labels, num_classes)
    of_labels = np.arange(0, logits.size, num_classes) + labels.astype(np.intp, copy=False)
    shifted = logits - _row_max(logits)[:, np.newaxis]
    gradient = np.exp(shifted)
    total = np.add.reduce(gradient, axis=1, keepdims=True)
    if weights is None:
        loss = np.add.reduce(np.log(total), axis=None) - np.add.reduce(shifted.take(of_labels))
    else:
        loss = np.dot(_of_examples(weights, batch), np.log(total[:, 0]) - shifted.take(of_labels))
    total *= batch
    np.divide(gradient, total, out=gradient)
    gradient.reshape(-1)[of_labels] -= 1.0 / batch
    if weights is not None:
        gradient *= np.asarray(weights, gradient.dtype)[:, np.newaxis]
    return float(loss) / batch, gradient


def sigmoid_cross_entropy(
    labels: NDArray[Any], logits: FloatArray, weights: NDArray[Any] | None = None
) -> tuple[float, FloatArray]:
    """Return the mean of ``-z log s(x) - (1 - z) log(1 - s(x))``, with `s` the logistic function, and its gradient.

    Computed as ``max(x, 0) - x * z + log(1 + exp(-|x|))``, which neither overflows nor cancels.

    Parameters
    ----------
    labels : array of numbers in [0, 1]
        ``z``: the probability of each event.
    logits : array of floats of the same shape
        ``x``.
    weights : (batch,) numbers, optional
        Of the examples, 1 each if left out. The divisor is the number of elements, whatever they weigh.

    Returns
    -------
    loss : float
        Mean over all elements.
    gradient : array of the shape and dtype of `logits`
        ``weight * (s(x) - z) / size``.

    Raises
    ------
    ModelFnError
        If the shapes differ.
    """
    if labels.shape != logits.shape:
        raise _shape_error("sigmoid_cross_entropy", "labels and logits of one shape", labels, logits)
    if not logits.size:
        return math.nan, np.zeros_like(logits)
    truth = np.asarray(labels, logits.dtype)
    losses = np.maximum(logits, 0.0) - logits * truth + np.log1p(np.exp(-np.abs(logits)))
    gradient = logistic(logits)
    np.subtract(gradient, truth, out=gradient)
    np.multiply(gradient, 1.0 / logits.size, out=gradient)
    if weights is not None:
        factors = np.asarray(_of_examples(weights, len(logits)), logits.dtype).reshape(-1, *[1] * (logits.ndim - 1))
        losses *= factors
        gradient *= factors
    return float(losses.mean()), gradient


def mean_squared_error(
    labels: NDArray[Any], predictions: FloatArray, weights: NDArray[Any] | None = None
) -> tuple[float, FloatArray]:
    """Return the mean of ``weight * (prediction - label) ** 2`` over all elements and its gradient.

    Parameters
    ----------
    labels : array of numbers
        The true values.
    predictions : array of floats of the same shape
        The values that the model computed.
    weights : (batch,) numbers, optional
        Of the examples, 1 each if left out. The divisor is the number of elements, whatever they weigh.

    Returns
    -------
    loss : float
        Mean over all elements; NaN for an empty batch.
    gradient : array of the shape and dtype of `predictions`
        ``2 * weight * (prediction - label) / size``.

    Raises
    ------
    ModelFnError
        If the shapes differ: ``(batch,)`` against ``(batch, 1)`` would broadcast to a loss of ``batch * batch`` pairs.
    """
    if labels.shape != predictions.shape:
        raise _shape_error("mean_squared_error", "labels and predictions of one shape", labels, predictions)
    if not predictions.size:
        return math.nan, np.zeros_like(predictions)
    errors: FloatArray = np.subtract(predictions, np.asarray(labels, predictions.dtype))
    if weights is None:
        gradient = errors
        loss = float(np.vdot(errors, errors))
    else:
        of_examples = np.asarray(_of_examples(weights, len(errors)), errors.dtype)
        gradient = errors * of_examples.reshape(-1, *[1] * (errors.ndim - 1))
        loss = float(np.vdot(gradient, errors))
    gradient *= 2.0 / predictions.size
    return loss / predictions.size, gradient


def _of_examples(weights: NDArray[Any], batch: int) -> NDArray[Any]:
    if np.shape(weights) != (batch,):
        raise ModelFnError(
            (f"expected weights of shape ({batch},), one for each example, got {np.shape(weights)}; reshape them",)
        )
    return weights


def _shape_error(function: str, expected: str, labels: NDArray[Any], others: NDArray[Any]) -> ModelFnError:
    return ModelFnError(
        (f"{function}: expected {expected}, got {labels.shape} and {others.shape}; reshape one of them",)
    )


def _row_max(values: FloatArray) -> FloatArray:
    """Return the largest number of each row of a ``(batch, classes)`` array; NaN for a row with NaN."""
    largest: FloatArray = (
        np.ascontiguousarray(values.T).max(axis=0) if values.shape[1] <= MAX_SHORT else values.max(axis=1)
    )
    return largest
