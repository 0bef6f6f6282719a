"""Converts labels of classifiers to class ids, and class ids to class names."""

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
"""Number of classes that an error lists."""


def class_ids_of(
    labels: Any, rows: int, n_classes: int, vocabulary: Sequence[str] | None, where: str = "the batch"
) -> NDArray[np.integer[Any]]:
    """Return labels as ``(rows,)`` integers; the range of integer labels is not checked here.

    Raises InputError if a label is invalid; names the first such row.
    """
    if labels is None:
        raise InputError((f"a classifier needs labels, {where} has none; return (features, labels) from input_fn",))
    given = np.asarray(labels)
    if given.shape not in ((rows,), (rows, 1)):
        expected = f"labels of shape ({rows},) for the {rows} examples of {where}"
        raise InputError((f"expected {expected}, got {given.shape}; one class id for each",))
    flat: NDArray[Any] = decoded(given.reshape(rows), f"the labels of {where}")
    if flat.dtype.kind in "UO" and vocabulary is not None:
        return ids_of_names(flat, vocabulary, where)
    if flat.dtype.kind in "iu":
        return flat
    if flat.dtype.kind not in "bf":
        raise InputError(
            (
                f"expected integer labels, got {flat.dtype} such as {flat[:1].tolist()}; encode them as class ids, or "
                "give their names as label_vocabulary",
            )
        )
    whole = (flat >= 0) & (flat < n_classes) & (np.floor(flat) == flat)
    if not whole.all():
        row = int(np.argmin(whole))
        raise LabelError(row, where, f"is {flat[row]}, expected an integer in [0, {n_classes})")
    return flat.astype(np.int64)


def ids_of_names(names: NDArray[Any], vocabulary: Sequence[str], where: str) -> NDArray[np.int64]:
    """Return the position of each class name, ``(rows,)``, in the vocabulary; InputError names an unknown one."""
    place_of = {name: place for place, name in enumerate(vocabulary)}
    found = (place_of.get(name, -1) if isinstance(name, str) else -1 for name in names.tolist())
    ids = np.fromiter(found, np.int64, len(names))
    if not (ids < 0).any():
        return ids
    row = int(np.argmax(ids < 0))
    name = names[row]
    near = did_you_mean(name, vocabulary) if isinstance(name, str) else ""
    got = repr(str(name)) if isinstance(name, str) else repr(name)
    raise LabelError(row, where, f"is {got}, expected one of {_shown(vocabulary)}{near}")


def vocabulary_of(
    n_classes: int | None, label_vocabulary: Sequence[str] | None, schema: InputSchema
) -> Sequence[str] | None:
    """Return the class names; None where the labels of a training input are numbers.

    Raises InputError if tabular files have other classes than `label_vocabulary`, another number than `n_classes`, or
    only one.
    """
    names = schema.classes
    if names is None:
        return label_vocabulary
    if label_vocabulary not in (None, names):
        raise InputError(
            (
                f"label_vocabulary is {_shown(label_vocabulary or ())}, but the label {schema.label!r} has the classes "
                f"{_shown(names)}; leave label_vocabulary out, or list the same classes for the label",
            )
        )
    if n_classes not in (None, len(names)):
        raise InputError(
            (
                f"n_classes is {n_classes}, but the label {schema.label!r} has {len(names)} classes, {_shown(names)}; "
                "leave n_classes out, or list the classes of the label",
            )
        )
    if len(names) < 2:
        raise InputError((f"the label {schema.label!r} has one class, {_shown(names)}: expected at least 2",))
    return names


def names_of_classes(n_classes: int, vocabulary: Sequence[str] | None) -> NDArray[np.str_]:
    """Return the name of each class, ``(n_classes,)``: without a vocabulary its id as a string."""
    return np.arange(n_classes).astype(str) if vocabulary is None else np.array(vocabulary)


def all_class_predictions(rows: int, names: NDArray[np.str_]) -> dict[str, NDArray[Any]]:
    """Return the predictions that are equal for all examples: read-only views of ``(rows, n_classes)``."""
    shape = rows, len(names)
    return {
        "all_class_ids": np.broadcast_to(np.arange(len(names), dtype=np.int32), shape),
        "all_classes": np.broadcast_to(names, shape),
    }


def _shown(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:MAX_SHOWN])) + (", ..." if len(names) > MAX_SHOWN else "")


def area_metrics(
    events: NDArray[Any], probabilities: FloatArray, weights: NDArray[Any] | None
) -> dict[str, metrics.Metric]:
    """Return the areas under two curves over all thresholds, ``auc`` and ``auc_precision_recall``."""
    return {
        "auc": metrics.auc(events, probabilities, weights),
        "auc_precision_recall": metrics.auc(
            events, probabilities, weights, curve="PR", summation_method="careful_interpolation"
        ),
    }


def threshold_metrics(
    events: NDArray[Any], probabilities: FloatArray, thresholds: Sequence[float], weights: NDArray[Any] | None
) -> dict[str, metrics.Metric]:
    """Return accuracy, precision and recall of the events whose probability exceeds each threshold."""
    measured: dict[str, metrics.Metric] = {}
    for threshold in thresholds:
        guesses, ending = probabilities > threshold, f"positive_threshold_{threshold:g}"
        measured[f"accuracy/{ending}"] = metrics.accuracy(events, guesses, weights)
        measured[f"precision/{ending}"] = metrics.precision(events, guesses, weights)
        measured[f"recall/{ending}"] = metrics.recall(events, guesses, weights)
    return measured
