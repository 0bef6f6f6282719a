"""Rows taken to where their ids stand, and joined; plain numpy, unless autograd follows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_runtime.tables.dedupe import Occurrences
from ps_runtime.tracing import plain

__all__ = ["gather", "pool", "take", "weighted_sum"]


def gather(rows: Any, found: Occurrences) -> Any:
    """Return ``(size, dim)``: for each position its row of ``(num_unique, dim)``."""
    if plain(rows) is rows:
        return take(rows, found)
    from ps_runtime.model import followed_rows  # imports autograd

    return followed_rows.gather(rows, found)


def pool(rows: Any, weights: Any, found: Occurrences, num_sums: int) -> Any:
    """Return ``(num_sums, dim)``: of as many neighbours the weighted sum of their rows.

    `weights` are ``(num_sums, size // num_sums)``, or None for 1 each.
    """
    if plain(rows) is rows and plain(weights) is weights:
        return weighted_sum(rows, weights, found, num_sums)
    from ps_runtime.model import followed_rows

    return followed_rows.pool(rows, weights, found, num_sums)


def take(rows: NDArray[Any], found: Occurrences) -> NDArray[Any]:
    """Be `gather` for plain arrays."""
    return np.take(rows, found.inverse(), axis=0)


def weighted_sum(rows: NDArray[Any], weights: NDArray[Any] | None, found: Occurrences, num_sums: int) -> NDArray[Any]:
    """Be `pool` for plain arrays."""
    return found.pool(rows, num_sums, None if weights is None else weights.reshape(-1))
