"""Finds duplicate ids in a batch: each row travels once, and the gradients of its occurrences are summed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]


_ones: dict[np.dtype[Any], Floats] = {}
_positions = np.arange(0)
"""Cached read-only arrays, as long as ever needed."""


@dataclass(frozen=True, slots=True, eq=False)
class Occurrences:
    """The positions of each id of an array; made by `find_occurrences`.

    Notes
    -----
    `pool` and `sum` are products with a sparse matrix and its transpose, so no row is repeated in memory.
    Both are deterministic.
    """

    unique: NDArray[np.int64]
    order: NDArray[np.integer[Any]]
    starts: NDArray[np.integer[Any]]
    size: int
    _sums: dict[int, NDArray[np.integer[Any]]] = field(default_factory=dict, init=False, repr=False)

    def inverse(self) -> NDArray[np.int64]:
        """Return the index of each id in `unique`, ``(size,)``: ``unique[inverse]`` are the ids; 0 for ids left out.

        Examples
        --------
        >>> find_occurrences(np.array([7, 3, 7])).inverse()
        array([1, 0, 1])
        """
        inverse = np.zeros(self.size, np.int64)
        inverse[self.order] = np.repeat(np.arange(len(self.unique)), np.diff(self.starts))
        return inverse

    def pool(self, rows: Floats, num_sums: int, weights: Floats | None = None) -> Floats:
        """Sum the rows of neighbouring ids: ``(num_sums, dim)``, each of the same number of ids.

        Examples
        --------
        >>> find_occurrences(np.array([7, 3, 7, 7])).pool(np.array([[1.0], [5.0]]), 2)
        array([[ 6.],
               [10.]])
        """
        from scipy.sparse import csc_array  # 23 MB that a ps, and a model without tables, do not need

        if not self.order.size:
            return np.zeros((num_sums, rows.shape[1]), rows.dtype)
        parts = self._entries(rows, weights), self._sum_of_each(num_sums), self.starts
        pooled: Floats = csc_array(parts, shape=(num_sums, len(self.unique))) @ rows
        return pooled

    def sum(self, values: Floats, weights: Floats | None = None) -> Floats:
        """Sum the values of each id, ``(u, dim)``, in the order of its occurrences.

        Examples
        --------
        >>> find_occurrences(np.array([7, 3, 7])).sum(np.array([[1.0], [2.0], [3.0]]))
        array([[2.],
               [4.]])
        """
        from scipy.sparse import csr_array

        if not self.order.size:
            return np.zeros((0, values.shape[1]), values.dtype)
        parts = self._entries(values, weights), self._sum_of_each(len(values)), self.starts
        summed: Floats = csr_array(parts, shape=(len(self.unique), len(values))) @ values
        return summed

    def _entries(self, values: Floats, weights: Floats | None) -> Floats:
        return _first_ones(len(self.order), values.dtype) if weights is None else weights.take(self.order)

    def _sum_of_each(self, num_sums: int) -> NDArray[np.integer[Any]]:
        """Return the index of the sum of each occurrence."""
        if num_sums == self.size:
            return self.order
        if num_sums not in self._sums:
            self._sums[num_sums] = self.order // (self.size // num_sums)
        return self._sums[num_sums]


def find_occurrences(ids: NDArray[np.int64], is_present: NDArray[np.bool] | None = None) -> Occurrences:
    """Find the distinct ids of an array, and their positions.

    Examples
    --------
    >>> found = find_occurrences(np.array([7, 3, 7]))
    >>> found.unique, found.order, found.starts
    (array([3, 7]), array([1, 0, 2], dtype=int32), array([0, 1, 3], dtype=int32))
    """
    places = None if is_present is None else np.flatnonzero(is_present)
    kept = ids if places is None else ids[places]
    index = np.dtype(np.int32 if ids.size < 2**31 else np.int64)
    values, order = _sorted(kept)
    is_start = np.ones(kept.size + 1, np.bool)  # the last one marks the end of the last id
    if kept.size:
        np.not_equal(values[1:], values[:-1], out=is_start[1:-1])
    (starts,) = is_start.nonzero()
    unique = values.take(starts[:-1])
    if places is not None:
        order = places[order]
    return Occurrences(unique, order.astype(index, copy=False), starts.astype(index), ids.size)


def _sorted(ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ids in ascending order, and the position of each; positions of equal ids ascend."""
    position_bits = ids.size.bit_length()
    if ids.size == 0 or int(ids.max()).bit_length() + position_bits > 63:
        order = np.argsort(ids, kind="stable")
        return ids[order], order
    # numpy sorts plain numbers several times faster than it finds an order, so id and position make one number
    keys = ids << position_bits
    keys |= _first_positions(ids.size)
    keys.sort()
    order = keys & ((1 << position_bits) - 1)
    keys >>= position_bits
    return keys, order


def _first_positions(number: int) -> NDArray[np.int64]:
    global _positions
    known = _positions  # another thread may replace it by a shorter one
    if len(known) < number:
        known = _positions = np.arange(number)
    return known[:number]


def _first_ones(number: int, dtype: np.dtype[Any]) -> Floats:
    known = _ones.get(dtype)
    if known is None or len(known) < number:
        known = _ones[dtype] = np.ones(number, dtype)
    return known[:number]
