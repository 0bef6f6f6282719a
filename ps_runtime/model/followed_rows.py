"""`gather` and `pool` as autograd follows them; their derivatives are sums by a sparse matrix.

autograd's own derivative of an indexing goes through the indices one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from autograd.extend import defvjp, primitive
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ps_runtime.model.gathering import Indices, take, weighted_sum
from ps_runtime.tables.dedupe import sum_rows

__all__ = ["gather", "pool"]


def _spread(gradient: NDArray[Any], weights: NDArray[Any], inverse: Indices, num_rows: int) -> NDArray[Any]:
    """Return ``(num_rows, dim)``: to each row its weights times the gradients of the sums that it is in."""
    if not num_rows:
        return np.zeros((0, gradient.shape[1]), gradient.dtype)
    num_sums, num_indices = inverse.shape
    starts = np.arange(num_sums + 1) * num_indices
    matrix = csr_array((weights.reshape(-1), inverse.reshape(-1), starts), shape=(num_sums, num_rows))
    return np.asarray(matrix.T @ gradient)


def _of_weights(gradient: NDArray[Any], rows: NDArray[Any], inverse: Indices) -> NDArray[Any]:
    """Return ``(n, k)``: how much each weight moves the sum that it is in."""
    if not len(rows):
        return np.zeros(inverse.shape, gradient.dtype)
    return np.asarray(np.einsum("nd,nkd->nk", gradient, take(rows, inverse)))


gather = primitive(take)
defvjp(gather, lambda ans, rows, inverse: lambda gradient: sum_rows(inverse, gradient, len(rows)), argnums=(0,))

pool = primitive(weighted_sum)
defvjp(
    pool,
    lambda ans, rows, weights, inverse: lambda gradient: _spread(gradient, weights, inverse, len(rows)),
    lambda ans, rows, weights, inverse: lambda gradient: _of_weights(gradient, rows, inverse),
    argnums=(0, 1),
)
