"""Medians and quartiles of alternating measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

__all__ = ["Spread", "paired_ratios"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of some values.

    Examples
    --------
    >>> Spread.of([1.0, 2.0, 3.0, 4.0, 5.0])
    Spread(q1=2.0, median=3.0, q3=4.0)
    >>> Spread.of([7.0])
    Spread(q1=7.0, median=7.0, q3=7.0)
    """

    q1: float
    median: float
    q3: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the spread of at least one value; quartiles lie between values in proportion."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        return cls(*statistics.quantiles(values, n=4, method="inclusive"))


def paired_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Return the ratio of each pair: what slows down both of a pair does not show in it.

    Examples
    --------
    >>> paired_ratios([100.0, 50.0], [20.0, 10.0])
    [5.0, 5.0]
    """
    return [n / d for n, d in zip(numerators, denominators, strict=True)]
