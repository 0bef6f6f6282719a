"""Checks the arguments of heads: each check returns its faults, and all faults make one error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.losses import Reduction


def check(model: str, faults: Iterable[str]) -> None:
    """Raise UsageError with all `faults` of the arguments of `model`, if there are any."""
    if found := tuple(f"{model}: {fault}" for fault in faults):
        raise UsageError(found)


def is_count(value: Any, *, at_least: int) -> bool:
    """Whether `value` is an integer with a lower bound."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= at_least)


def count_faults(name: str, value: Any, at_least: int) -> list[str]:
    """Return the faults of an integer with a lower bound."""
    if is_count(value, at_least=at_least):
        return []
    return [f"{name} is {value!r}, expected an integer >= {at_least}"]


def loss_faults(weight_column: Any, loss_reduction: Any) -> list[str]:
    """Return the faults of the weights of examples, and of the reduction of losses."""
    faults = []
    if weight_column is not None and not (isinstance(weight_column, str) and weight_column):
        faults.append(f"weight_column is {weight_column!r}, expected the name of a feature, or None")
    known = [str(each) for each in Reduction]
    if loss_reduction not in known:
        near = did_you_mean(loss_reduction, known) if isinstance(loss_reduction, str) else ""
        faults.append(f"loss_reduction is {loss_reduction!r}, expected one of {', '.join(known)}{near}")
    return faults


def name_faults(name: Any) -> list[str]:
    """Return the faults of the name of a head."""
    if name is None or (isinstance(name, str) and name):
        return []
    return [f"name is {name!r}, expected a text, or None"]


def class_faults(n_classes: Any, label_vocabulary: Any, at_least: int) -> list[str]:
    """Return the faults of a number of classes, None if it is left open, and of their names."""
    faults = [] if n_classes is None else count_faults("n_classes", n_classes, at_least)
    if label_vocabulary is None:
        return faults
    if isinstance(label_vocabulary, str) or not isinstance(label_vocabulary, Sequence):
        return [*faults, f"label_vocabulary is {label_vocabulary!r}, expected a list of the class names"]
    if strange := [name for name in label_vocabulary if not (isinstance(name, str) and name)]:
        return [*faults, f"label_vocabulary has {strange[0]!r}, expected class names"]
    faults += [f"label_vocabulary has {name!r} twice" for name, times in Counter(label_vocabulary).items() if times > 1]
    if not faults and len(label_vocabulary) != n_classes and n_classes is not None:
        faults.append(f"label_vocabulary has {len(label_vocabulary)} names, expected {n_classes}, one for each class")
    if n_classes is None and len(label_vocabulary) < at_least:
        faults.append(f"label_vocabulary has {len(label_vocabulary)} names, expected {at_least} or more")
    return faults


def threshold_faults(thresholds: Any) -> list[str]:
    """Return the faults of the thresholds of metrics: numbers between 0 and 1, each once."""
    if isinstance(thresholds, str) or not isinstance(thresholds, Sequence):
        return [f"thresholds is {thresholds!r}, expected a list of numbers between 0 and 1"]
    faults = [
        f"thresholds has {value!r}, expected numbers between 0 and 1, exclusive"
        for value in thresholds
        if isinstance(value, bool) or not isinstance(value, int | float | np.floating) or not 0 < value < 1
    ]
    return faults or _twice("thresholds", [f"{value:g}" for value in thresholds])


def metric_class_faults(classes: Any, n_classes: Any, label_vocabulary: Any) -> list[str]:
    """Return the faults of the classes with metrics of their own, given by id or by name."""
    name = "classes_for_class_based_metrics"
    if isinstance(classes, str) or not isinstance(classes, Sequence):
        return [f"{name} is {classes!r}, expected a list of class ids or names"]
    if not is_count(n_classes, at_least=1):
        return []  # reported by another check
    names = label_vocabulary or ()
    ids = range(int(n_classes))
    faults = [
        f"{name} has {each!r}, expected an integer in [0, {n_classes}), or a name of label_vocabulary"
        for each in classes
        if not (each in names if isinstance(each, str) else is_count(each, at_least=0) and each in ids)
    ]
    return faults or _twice(name, [str(each) for each in classes])


def _twice(name: str, shown: Iterable[str]) -> list[str]:
    return [f"{name} has {value} twice" for value, times in Counter(shown).items() if times > 1]
