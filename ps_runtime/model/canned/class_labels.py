"""Labels of classifiers as class ids, and class ids as words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime import metrics
from psflow.ps_runtime.columns.texts import decoded
from psflow.ps_runtime.errors import InputError, LabelError, did_you_mean
from psflow.ps_runtime.losses import FloatArray
from psflow.ps_runtime.specs.schema import InputSchema

MAX_SHOWN = 10
"""Classes that an error lists."""


def class_ids_of(
    labels: Any, rows: int, n_classes: int, vocabulary: Sequence[str] | None, where: str = "the batch"
) -> NDArray[np.integer[Any]]:
    """Return labels as ``(rows,)`` integers; the range of those that are integers already is not judged here.

    Raises
    ------
    InputError
        If they are anything else; names the first such row.
    """
    if labels is None:
        raise InputError((f"a classifier needs labels, {where} has none; let input_fn return (features, labels)",))
    given = np.asarray(labels)
    if given.shape not in ((rows,), (rows, 1)):
        expected = f"labels of shape ({rows},) for the {rows} examples of {where}"
        raise InputError((f"expected {expected}, got {given.shape}; one class id for each",))
    flat: NDArray[Any] = decoded(given.reshape(rows), f"the labels of {where}")
    if flat.dtype.kind in "UO" and vocabulary is not None:
        return ids_of_words(flat, vocabulary, where)
    if flat.dtype.kind in "iu":
        return flat
    if flat.dtype.kind not in "bf":
        raise InputError(
            (
                f"expected integer labels, got {flat.dtype} such as {flat[:1].tolist()}; encode them as class ids, or "
                "give their words as label_vocabulary",
            )
        )
    whole = (flat >= 0) & (flat < n_classes) & (np.floor(flat) == flat)
    if not whole.all():
        row = int(np.argmin(whole))
        raise LabelError(row, where, f"is {flat[row]}, expected an integer in [0, {n_classes})")
    return flat.astype(np.int64)


def ids_of_words(words: NDArray[Any], vocabulary: Sequence[str], where: str) -> NDArray[np.int64]:
    """Return the place of each of some words, ``(rows,)``, in the vocabulary; InputError names the first without."""
    place_of = {word: place for place, word in enumerate(vocabulary)}
    found = (place_of.get(word, -1) if isinstance(word, str) else -1 for word in words.tolist())
    ids = np.fromiter(found, np.int64, len(words))
    if not (ids < 0).any():
        return ids
    row = int(np.argmax(ids < 0))
    word = words[row]
    near = did_you_mean(word, vocabulary) if isinstance(word, str) else ""
    got = repr(str(word)) if isinstance(word, str) else repr(word)
    raise LabelError(row, where, f"is {got}, expected one of {_shown(vocabulary)}{near}")


def vocabulary_of(
    n_classes: int | None, label_vocabulary: Sequence[str] | None, schema: InputSchema
) -> Sequence[str] | None:
    """Return the words of the classes; None where the labels of a training input are numbers.

    Raises
    ------
    InputError
        If tabular files have other words than `label_vocabulary`, another number of them than `n_classes`, or only one.
    """
    words = schema.classes
    if words is None:
        return label_vocabulary
    if label_vocabulary not in (None, words):
        raise InputError(
            (
                f"label_vocabulary is {_shown(label_vocabulary or ())}, but the label {schema.label!r} has the classes "
                f"{_shown(words)}; leave label_vocabulary out, or list the classes of the label alike",
            )
        )
    if n_classes not in (None, len(words)):
        raise InputError(
            (
                f"n_classes is {n_classes}, but the label {schema.label!r} has {len(words)} classes, {_shown(words)}; "
                "leave n_classes out, or list the classes of the label",
            )
        )
    if len(words) < 2:
        raise InputError(
            (f"the label {schema.label!r} has one class, {_shown(words)}: expected at least 2 to tell from each other",)
        )
    return words


def words_of_classes(n_classes: int, vocabulary: Sequence[str] | None) -> NDArray[np.str_]:
    """Return the word of each class, ``(n_classes,)``: without a vocabulary its id as text."""
    return np.arange(n_classes).astype(str) if vocabulary is None else np.array(vocabulary)


def all_class_predictions(rows: int, words: NDArray[np.str_]) -> dict[str, NDArray[Any]]:
    """Return the predictions that are the same for each example: read-only views of ``(rows, n_classes)``."""
    shape = rows, len(words)
    return {
        "all_class_ids": np.broadcast_to(np.arange(len(words), dtype=np.int32), shape),
        "all_classes": np.broadcast_to(words, shape),
    }


def _shown(words: Sequence[str]) -> str:
    return ", ".join(map(repr, words[:MAX_SHOWN])) + (", ..." if len(words) > MAX_SHOWN else "")


def area_metrics(
    events: NDArray[Any], probabilities: FloatArray, weights: NDArray[Any] | None
) -> dict[str, metrics.Metric]:
    """Return the areas below two curves over all thresholds, ``auc`` and ``auc_precision_recall``."""
    return {
        "auc": metrics.auc(events, probabilities, weights),
        "auc_precision_recall": metrics.auc(
            events, probabilities, weights, curve="PR", summation_method="careful_interpolation"
        ),
    }


def threshold_metrics(
    events: NDArray[Any], probabilities: FloatArray, thresholds: Sequence[float], weights: NDArray[Any] | None
) -> dict[str, metrics.Metric]:
    """Return accuracy, precision and recall of the events whose probability is larger than each threshold."""
    measured: dict[str, metrics.Metric] = {}
    for threshold in thresholds:
        guesses, ending = probabilities > threshold, f"positive_threshold_{threshold:g}"
        measured[f"accuracy/{ending}"] = metrics.accuracy(events, guesses, weights)
        measured[f"precision/{ending}"] = metrics.precision(events, guesses, weights)
        measured[f"recall/{ending}"] = metrics.recall(events, guesses, weights)
    return measured
