"""Metrics of probabilities and scores: common losses."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psflow.ps_runtime.metrics.base import (
    Doubles,
    Mean,
    argument_error,
    class_ids,
    doubles,
    mean_of,
    rows_of_classes,
    share,
)
from psflow.ps_runtime.numeric import plain

EPSILON = 1e-7
"""TensorFlow's distance of clipped probabilities from 0 and 1."""


def binary_crossentropy(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    *,
    name: str | None = None,
) -> Mean:
    """Measure the mean cross entropy of `labels`, in [0, 1], and probabilities, or their logits; both of one shape.

    `label_smoothing` moves labels towards 1/2 by this share.
    """
    function = "binary_crossentropy"
    truth, guesses = doubles(function, labels, predictions)
    smoothing = share(function, "label_smoothing", label_smoothing)
    truth = truth * (1.0 - smoothing) + 0.5 * smoothing
    if from_logits:
        losses = np.maximum(guesses, 0.0) - guesses * truth + np.log1p(np.exp(-np.abs(guesses)))
    else:
        kept = _probabilities(function, guesses)
        losses = -(truth * np.log(kept + EPSILON) + (1.0 - truth) * np.log(1.0 - kept + EPSILON))
    return mean_of(function, losses, weights)


def categorical_crossentropy(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    *,
    name: str | None = None,
) -> Mean:
    """Measure the mean cross entropy of two distributions ``(..., classes)``; the second may be given as logits.

    `label_smoothing` moves labels towards an even distribution by this share. Weights have the shape without the
    classes.
    """
    function = "categorical_crossentropy"
    truth, guesses, shape = rows_of_classes(function, labels, predictions)
    smoothing = share(function, "label_smoothing", label_smoothing)
    truth = truth * (1.0 - smoothing) + smoothing / truth.shape[1]
    if from_logits:
        logarithms = _log_softmax(guesses)
    else:
        positive = _not_negative(function, guesses)
        logarithms = np.log(_probabilities(function, positive / positive.sum(axis=1, keepdims=True)))
    return mean_of(function, -np.sum(truth * logarithms, axis=1).reshape(shape), weights)


def sparse_categorical_crossentropy(
    labels: ArrayLike,
    predictions: ArrayLike,
    weights: ArrayLike | None = None,
    from_logits: bool = False,
    *,
    name: str | None = None,
) -> Mean:
    """Measure the mean of ``-log p[label]``: labels are class ids, predictions distributions ``(..., classes)``.

    Weights have the shape of labels. With `from_logits` predictions are logits.
    """
    function = "sparse_categorical_crossentropy"
    truth, guesses = np.asarray(plain(labels)), np.asarray(plain(predictions), np.float64)
    if not guesses.ndim or truth.shape != guesses.shape[:-1]:
        raise argument_error(
            function, f"expected predictions (..., classes) and labels (...), got {guesses.shape} and {truth.shape}"
        )
    ids = class_ids(function, "labels", truth, guesses.shape[-1])
    rows = guesses.reshape(-1, guesses.shape[-1])
    logarithms = _log_softmax(rows if from_logits else np.log(_probabilities(function, rows)))
    losses = -np.take_along_axis(logarithms, ids[:, np.newaxis], axis=1)
    return mean_of(function, losses.reshape(truth.shape), weights)


def hinge(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the mean of ``max(0, 1 - label * prediction)``; labels are 1, and -1 or 0 for the other class."""
    truth, guesses = _signs("hinge", labels, predictions)
    return mean_of("hinge", np.maximum(1.0 - truth * guesses, 0.0), weights)


def squared_hinge(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the mean of ``max(0, 1 - label * prediction) ** 2``; labels are those of `hinge`."""
    truth, guesses = _signs("squared_hinge", labels, predictions)
    return mean_of("squared_hinge", np.square(np.maximum(1.0 - truth * guesses, 0.0)), weights)


def categorical_hinge(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the mean of ``max(0, 1 + wrong - right)`` of the best wrong score and that of the right class.

    Labels of ``(..., classes)`` are 1 for the right class, else 0. Weights have the shape without the classes.
    """
    truth, guesses, shape = rows_of_classes("categorical_hinge", labels, predictions)
    right = np.sum(truth * guesses, axis=1)
    wrong = np.max((1.0 - truth) * guesses, axis=1)
    return mean_of("categorical_hinge", np.maximum(wrong - right + 1.0, 0.0).reshape(shape), weights)


def kl_divergence(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the mean of ``sum(label * log(label / prediction))`` over distributions ``(..., classes)``.

    Weights have the shape without the classes.
    """
    truth, guesses, shape = rows_of_classes("kl_divergence", labels, predictions)
    truth, guesses = (np.clip(_not_negative("kl_divergence", values), EPSILON, 1.0) for values in (truth, guesses))
    return mean_of("kl_divergence", np.sum(truth * np.log(truth / guesses), axis=1).reshape(shape), weights)


def poisson(
    labels: ArrayLike, predictions: ArrayLike, weights: ArrayLike | None = None, *, name: str | None = None
) -> Mean:
    """Measure the mean of ``prediction - label * log(prediction)``; both of one shape, predictions 0 or more."""
    truth, guesses = doubles("poisson", labels, predictions)
    return mean_of("poisson", guesses - truth * np.log(_not_negative("poisson", guesses) + EPSILON), weights)


def _signs(function: str, labels: ArrayLike, predictions: ArrayLike) -> tuple[Doubles, Doubles]:
    """Return labels as 1 or -1, and predictions."""
    truth, guesses = doubles(function, labels, predictions)
    unknown = ~np.isin(truth, (-1.0, 0.0, 1.0))
    if unknown.any():
        raise argument_error(function, f"a label is {truth[unknown][0]}, expected 1, and -1 or 0 for the other class")
    return np.where(truth == 0.0, -1.0, truth), guesses


def _not_negative(function: str, values: Doubles) -> Doubles:
    if (values < 0.0).any():
        raise argument_error(function, f"expected numbers of 0 or more, got {values[values < 0.0][0]}")
    return values


def _probabilities(function: str, values: Doubles) -> Doubles:
    """Return probabilities clipped like TensorFlow's."""
    outside = (values < 0.0) | (values > 1.0)
    if outside.any():
        raise argument_error(
            function, f"expected probabilities in [0, 1], got {values[outside][0]}; for logits pass from_logits=True"
        )
    kept: NDArray[np.float64] = np.clip(values, EPSILON, 1.0 - EPSILON)
    return kept


def _log_softmax(logits: Doubles) -> Doubles:
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: Doubles = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
    return found
