"""Ids that come several times in a batch: each row travels once, and the gradients of its occurrences are summed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["sum_rows", "unique_ids"]


def unique_ids(ids: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids without duplicates, ascending, and where each came to stand.

    Parameters
    ----------
    ids : array of integers >= 0, any shape

    Returns
    -------
    unique : (u,) array of int64
        Ascending.
    inverse : (n,) array of int64
        ``unique[inverse]`` is ``ids.ravel()``.

    Examples
    --------
    >>> unique_ids(np.array([7, 3, 7]))
    (array([3, 7]), array([1, 0, 1]))
    """
    flat = ids.ravel().astype(np.int64, copy=False)
    position_bits = flat.size.bit_length()
    if flat.size == 0 or int(flat.max()).bit_length() + position_bits > 63:
        unique, inverse = np.unique(flat, return_inverse=True)
        return unique, inverse
    # numpy sorts plain numbers several times faster than it finds an order: so id and position make one number
    keys = flat << position_bits
    keys |= np.arange(flat.size)
    keys.sort()
    positions = keys & ((1 << position_bits) - 1)
    keys >>= position_bits
    is_first = np.empty(flat.size, np.bool)
    is_first[0] = True
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    inverse = np.empty(flat.size, np.int64)
    inverse[positions] = np.cumsum(is_first) - 1
    return keys[is_first], inverse


def sum_rows(inverse: NDArray[np.integer[Any]], values: NDArray[Any], num_unique: int) -> NDArray[Any]:
    """Add up the rows that belong to one id.

    Parameters
    ----------
    inverse : (n,) array of int64
        As `unique_ids` returns it.
    values : (n, dim) array of floats
    num_unique : int

    Returns
    -------
    (num_unique, dim) array of the dtype of `values`

    Notes
    -----
    Deterministic: occurrences are added in their order.

    Examples
    --------
    >>> sum_rows(np.array([1, 0, 1]), np.array([[1.0], [2.0], [3.0]]), 2)
    array([[2.],
           [4.]])
    """
    from scipy.sparse import csc_array  # 23 MB, which a ps, and a model without tables, can do without

    # column j of the matrix has a single 1, in the row of the id of occurrence j
    ones, starts = np.ones(len(inverse), values.dtype), np.arange(len(inverse) + 1)
    summed: NDArray[Any] = csc_array((ones, inverse, starts), shape=(num_unique, len(inverse))) @ values
    return summed
