"""Rows taken to where their ids stand, and joined: on plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.tables.dedupe import Occurrences

__all__ = ["take", "weighted_sum"]


def take(rows: NDArray[Any], found: Occurrences) -> NDArray[Any]:
    """Return ``(size, dim)``: for each position its row of ``(num_unique, dim)``."""
    return np.take(rows, found.inverse(), axis=0)


def weighted_sum(rows: NDArray[Any], weights: NDArray[Any] | None, found: Occurrences, num_sums: int) -> NDArray[Any]:
    """Return ``(num_sums, dim)``: of as many neighbours the weighted sum of their rows.

    `weights` are ``(num_sums, size // num_sums)``, or None for 1 each.
    """
    return found.pool(rows, num_sums, None if weights is None else weights.reshape(-1))
