"""What canned models accept as hyper-parameters: each check returns its faults, and all of them make one error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.feature_columns.choosing import deep_columns_faults, has_columns, linear_columns_faults
from psflow.ps_runtime.feature_columns.kinds import COMBINERS, FeatureColumn
from psflow.ps_runtime.optimizers import Optimizer

__all__ = [
    "NamesOrColumns",
    "check",
    "combiner_faults",
    "count_faults",
    "optimizer_faults",
    "parts_faults",
    "units_faults",
]


if TYPE_CHECKING:
    NamesOrColumns = FeatureColumn | Iterable[str] | Iterable[FeatureColumn]
else:
    NamesOrColumns = Sequence[str]  # what a configuration may have


def check(model: str, faults: Iterable[str]) -> None:
    """Raise UsageError with all `faults` of the hyper-parameters of `model`, if there are some."""
    if told := tuple(f"{model}: {fault}" for fault in faults):
        raise UsageError(told)


def units_faults(hidden_units: Any, name: str = "hidden_units") -> list[str]:
    """Say what is wrong with the units of hidden layers: a list of integers >= 1, which may be empty."""
    if isinstance(hidden_units, Sequence | np.ndarray) and all(_is_count(n, at_least=1) for n in hidden_units):
        return []
    return [f"{name} is {hidden_units!r}, expected a list of integers >= 1"]


def count_faults(name: str, value: Any, at_least: int) -> list[str]:
    """Say what is wrong with an integer that has a lower bound."""
    if _is_count(value, at_least=at_least):
        return []
    return [f"{name} is {value!r}, expected an integer >= {at_least}"]


def optimizer_faults(optimizer: Any, example: str, name: str = "optimizer") -> list[str]:
    """Say what is wrong with an optimizer; `example` shows how one is made."""
    if isinstance(optimizer, Optimizer):
        return []
    return [f"{name} is {optimizer!r}, expected an Optimizer such as {example}"]


def combiner_faults(name: str, combiner: Any) -> list[str]:
    """Say what is wrong with the way in which weights of several ids become one."""
    return [] if combiner in COMBINERS else [f"{name} is {combiner!r}, expected {', '.join(COMBINERS)}"]


def parts_faults(linear_names: Any, dnn_names: Any) -> list[str]:
    """Say what is wrong with the features of the parts of a wide and deep model.

    There are names or columns for both parts, or for none.
    """
    if has_columns(linear_names) or has_columns(dnn_names):
        return [
            *linear_columns_faults(linear_names, "linear_feature_columns"),
            *deep_columns_faults(dnn_names, "dnn_feature_columns"),
        ]
    named = {"linear_feature_columns": linear_names, "dnn_feature_columns": dnn_names}
    faults = [
        f"{key} is {names!r}, expected a list of names of features, each once"
        for key, names in named.items()
        if names is not None and not _are_names(names)
    ]
    if (linear_names is None) != (dnn_names is None):
        missing, alone = ("linear", "DNN") if linear_names is None else ("dnn", "Linear")
        faults.append(
            f"{missing}_feature_columns is missing: name the features of both parts, or of none, where each reads all; "
            f"of one part alone there are {alone}Classifier and {alone}Regressor"
        )
    return faults


def _are_names(names: Any) -> bool:
    return (
        isinstance(names, Sequence)
        and not isinstance(names, str)
        and bool(names)
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names)
    )


def _is_count(value: Any, *, at_least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= at_least)
