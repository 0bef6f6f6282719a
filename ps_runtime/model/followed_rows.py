"""`gather` and `pool` as autograd follows them; their derivatives are sums by a sparse matrix.

autograd's own derivative of an indexing goes through the indices one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from autograd.extend import defvjp, primitive
from numpy.typing import NDArray

from psflow.ps_runtime.model.plain_rows import take, weighted_sum
from psflow.ps_runtime.tables.dedupe import Occurrences

__all__ = ["gather", "pool"]


def _of_rows(gradient: NDArray[Any], weights: NDArray[Any] | None, found: Occurrences) -> NDArray[Any]:
    """Return ``(num_unique, dim)``: to each row its weights times the gradients of the sums that it is in."""
    return found.sum(gradient, None if weights is None else weights.reshape(-1))


def _of_weights(gradient: NDArray[Any], rows: NDArray[Any], weights: NDArray[Any], found: Occurrences) -> NDArray[Any]:
    """Return ``(num_sums, k)``: how much each weight moves the sum that it is in."""
    if not len(rows):
        return np.zeros(weights.shape, gradient.dtype)
    each = take(rows, found).reshape(*weights.shape, rows.shape[1])
    return np.asarray(np.einsum("nd,nkd->nk", gradient, each))


gather = primitive(take)
defvjp(gather, lambda ans, rows, found: found.sum, argnums=(0,))

pool = primitive(weighted_sum)
defvjp(
    pool,
    lambda ans, rows, weights, found, num_sums: lambda gradient: _of_rows(gradient, weights, found),
    lambda ans, rows, weights, found, num_sums: lambda gradient: _of_weights(gradient, rows, weights, found),
    argnums=(0, 1),
)
