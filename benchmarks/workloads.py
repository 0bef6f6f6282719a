"""A training workload: a module of `benchmarks.models`, its parameters, and its interval of reports."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Workload"]


@dataclass(frozen=True, slots=True)
class Workload:
    """Something to train, for psflow, for its limit, and for the peer, on the same data.

    Parameters
    ----------
    model : str
        A module of `benchmarks.models`: ``mlp``, ``dense`` or ``embedding``.
    report_steps : int
        Steps between two reports of progress.
    slice_secs : float
        How long to measure at a time; long enough for several reports of the slowest system.
    params : mapping
        Hyper-parameters, as plain data.
    """

    model: str
    report_steps: int
    slice_secs: float
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> ModuleType:
        """The module of the model."""
        return importlib.import_module(f"benchmarks.models.{self.model}")

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the records: ``features`` and ``labels``."""
        data: dict[str, NDArray[Any]] = self.module.arrays(self.params)
        return data

    def bare_step(self) -> Callable[[], object]:
        """Return the limit: a function that does the work of a step that no system can leave out."""
        step: Callable[[], object] = self.module.bare_step(self.params)
        return step

    def save_arrays(self, path: str) -> None:
        """Write the records to an npz file, for a program that cannot import this package."""
        data = self.arrays()
        np.savez(path, features=data["features"], labels=data["labels"])
