"""What a metric is: sums over examples that merge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ModelFnError

__all__ = ["Doubles", "Metric", "zero_if_empty"]

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Metric(ABC):
    """Sums over examples, one in each field, from which a number can be read.

    A new metric is a frozen dataclass whose fields are sums with zero defaults, and a `result`. What stands behind
    ``_: KW_ONLY`` is no sum, but says what is measured: metrics merge only if it is the same in both.
    """

    def merge(self, other: Self) -> Self:
        """Return the metric over the examples of both. Associative and commutative up to rounding.

        Raises
        ------
        ModelFnError
            If `other` is a metric of another class, of other parameters, or of arrays of another shape.
        """
        if type(other) is not type(self):
            raise ModelFnError(
                (f"a {type(self).__name__} cannot be merged with a {type(other).__name__}; return one metric per name",)
            )
        added = {}
        for name, says_what in ((f.name, f.kw_only) for f in fields(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            if says_what:
                if mine != theirs:
                    raise _cannot_merge(self, f"{name} {theirs!r}", f"{name} {mine!r}")
            elif isinstance(mine, np.ndarray) and isinstance(theirs, np.ndarray) and mine.shape != theirs.shape:
                raise _cannot_merge(self, f"shape {theirs.shape}", f"shape {mine.shape}")
            else:
                added[name] = mine + theirs
        return replace(self, **added)

    @abstractmethod
    def result(self) -> float | Doubles:
        """Return the number, or an array of them; NaN if there was no example."""


def zero_if_empty(part: float | Doubles, whole: float | Doubles) -> Doubles:
    """Return ``part / whole``, elementwise; 0 where `whole` is 0."""
    parts, wholes = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    return np.divide(parts, wholes, out=np.zeros(np.broadcast(parts, wholes).shape), where=wholes != 0.0)


def _cannot_merge(metric: Metric, got: str, expected: str) -> ModelFnError:
    return ModelFnError(
        (f"a {type(metric).__name__} of {got} cannot be merged with one of {expected}; measure every batch alike",)
    )
