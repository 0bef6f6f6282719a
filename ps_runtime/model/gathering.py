"""Rows taken to where their ids stand, and joined; plain numpy, unless autograd follows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_runtime.tracing import plain

__all__ = ["gather", "pool", "take", "weighted_sum"]

Indices = NDArray[np.integer[Any]]


def gather(rows: Any, inverse: Indices) -> Any:
    """Return ``(n, dim)``: for each of ``(n,)`` indices that row of ``(num_rows, dim)``."""
    if plain(rows) is rows:
        return take(rows, inverse)
    from ps_runtime.model import followed_rows  # imports autograd

    return followed_rows.gather(rows, inverse)


def pool(rows: Any, weights: Any, inverse: Indices) -> Any:
    """Return ``(n, dim)``: for each of n times k indices and weights the weighted sum of those rows."""
    if plain(rows) is rows and plain(weights) is weights:
        return weighted_sum(rows, weights, inverse)
    from ps_runtime.model import followed_rows

    return followed_rows.pool(rows, weights, inverse)


def take(rows: NDArray[Any], inverse: Indices) -> NDArray[Any]:
    """Be `gather` for plain arrays."""
    return np.take(rows, inverse, axis=0)


def weighted_sum(rows: NDArray[Any], weights: NDArray[Any], inverse: Indices) -> NDArray[Any]:
    """Be `pool` for plain arrays."""
    if not len(rows):
        return np.zeros((len(weights), rows.shape[1]), rows.dtype)
    summed: NDArray[Any] = np.matmul(weights[:, np.newaxis, :], np.take(rows, inverse, axis=0))
    return summed[:, 0]
