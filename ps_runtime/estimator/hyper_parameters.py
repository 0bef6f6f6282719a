"""What canned models accept as hyper-parameters: each check returns its faults, and all of them make one error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.optimizers import Optimizer

__all__ = ["check", "count_faults", "optimizer_faults", "units_faults"]


def check(model: str, faults: Iterable[str]) -> None:
    """Raise UsageError with all `faults` of the hyper-parameters of `model`, if there are some."""
    if told := tuple(f"{model}: {fault}" for fault in faults):
        raise UsageError(told)


def units_faults(hidden_units: Any) -> list[str]:
    """Say what is wrong with the units of hidden layers: a list of integers >= 1, which may be empty."""
    if isinstance(hidden_units, Sequence | np.ndarray) and all(_is_count(n, at_least=1) for n in hidden_units):
        return []
    return [f"hidden_units is {hidden_units!r}, expected a list of integers >= 1"]


def count_faults(name: str, value: Any, at_least: int) -> list[str]:
    """Say what is wrong with an integer that has a lower bound."""
    if _is_count(value, at_least=at_least):
        return []
    return [f"{name} is {value!r}, expected an integer >= {at_least}"]


def optimizer_faults(optimizer: Any, example: str) -> list[str]:
    """Say what is wrong with an optimizer; `example` shows how one is made."""
    if isinstance(optimizer, Optimizer):
        return []
    return [f"optimizer is {optimizer!r}, expected an Optimizer such as {example}"]


def _is_count(value: Any, *, at_least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= at_least)
