"""Deduplicates the ids of lookups, and sums the gradients of repeated ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError, ModelFnError
from psflow.ps_runtime.numeric import plain
from psflow.ps_runtime.specs.variables import TableSpec
from psflow.ps_runtime.tables.bounds import check_ids
from psflow.ps_runtime.tables.duplicate_ids import Occurrences, find_occurrences

ABSENT = -1
"""Marks an absent id."""


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """The ids of one array with their repetitions; made by `of`."""

    ids: NDArray[Any]
    found: Occurrences
    present: NDArray[np.bool_] | None
    _flat: NDArray[np.int64]

    @classmethod
    def of(cls, spec: TableSpec, ids: NDArray[Any]) -> Self:
        """Find the repetitions among integer `ids`.

        Raises InputError if an id is neither in the table nor -1.
        """
        flat = ids.astype(np.int64).reshape(-1)  # a copy, which detects writes to `ids`
        present = None
        # as unsigned numbers negative ids are the largest, so one pass checks both bounds
        if ids.size and int(flat.view(np.uint64).max()) >= spec.num_rows:
            _check(spec, ids)
            present = flat != ABSENT
        return cls(ids, find_occurrences(flat, present), present, flat)

    @property
    def unique(self) -> NDArray[np.int64]:
        """Each id that is present, once; ascending."""
        return self.found.unique

    def is_of(self, ids: NDArray[Any]) -> bool:
        """Return whether this was made from that very array, and its ids are unchanged."""
        return ids is self.ids and bool((ids.reshape(-1) == self._flat).all())


class Lookups:
    """The lookups of one batch: the repetitions in an array of ids are searched once.

    A caller that pulls rows before a call of model_fn creates one for the batch and passes it to the call, which then
    finds the same `Lookup` again. Not thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[int, Lookup] = {}

    def of(self, spec: TableSpec, ids: Any) -> Lookup:
        """Return the `Lookup` of an array of ids of a table.

        Raises InputError if they are not integers, or an id is neither in ``[0, num_rows)`` nor -1.
        """
        array = integer_ids(spec.name, ids)
        known = self._known.get(id(array))  # `known` holds its array, so that no other can have this id
        if known is None or not known.is_of(array):
            known = self._known[id(array)] = Lookup.of(spec, array)
        elif len(known.unique) and known.unique[-1] >= spec.num_rows:
            _check(spec, array)  # they were checked for another table, which may be larger
        return known


def integer_ids(table: str, ids: Any) -> NDArray[Any]:
    """Return `ids` as an array, unchanged if it is one; InputError, naming the `table`, if they are not integers."""
    array = np.asarray(ids)
    if array.dtype.kind not in "iu":
        raise InputError(
            (
                f"table {table!r}: expected integer ids, got {array.dtype.name}{list(array.shape)}; "
                "cast them: ids.astype(np.int64)",
            )
        )
    return array


def _check(spec: TableSpec, ids: NDArray[Any]) -> None:
    if ids.min() < ABSENT or ids.max() >= spec.num_rows:
        check_ids(spec.name, np.where(ids == ABSENT, 0, ids), spec.num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class SparseGradient:
    """The gradient of a table, computed manually for `Optimizer.apply_gradients`.

    Parameters
    ----------
    ids : array of integers, any shape
        The ids that were looked up. An id may occur several times: its gradients are added. -1 is ignored.
    values : ``(*ids.shape, dim)`` or ``(*ids.shape[:-1], 1, dim)`` array
        Gradient of the loss with respect to the looked-up row of each id; or one row for all ids along the last axis,
        as for lookups with ``combiner="sum"``.

    Notes
    -----
    ``a + b`` is the gradient of a table with two lookups.

    Examples
    --------
    >>> one, other = SparseGradient([3, 4], np.ones((2, 8))), SparseGradient([[4, -1]], np.ones((1, 2, 8)))
    >>> (one + other).ids
    array([ 3,  4,  4, -1])
    """

    ids: Any
    values: Any

    def __add__(self, other: SparseGradient) -> SparseGradient:
        parts = (self, other)
        return SparseGradient(
            np.concatenate([np.asarray(part.ids).reshape(-1) for part in parts]),
            np.concatenate([part._row_of_each_id() for part in parts]),
        )

    def _row_of_each_id(self) -> NDArray[Any]:
        """Return ``(number of ids, dim)``."""
        ids, values = np.asarray(self.ids), np.asarray(plain(self.values))
        if ids.ndim and values.shape[:-1] == (*ids.shape[:-1], 1):
            values = np.broadcast_to(values, (*ids.shape, values.shape[-1]))
        return values.reshape(-1, *values.shape[-1:])


@dataclass(frozen=True, slots=True, eq=False)
class RowGradient:
    """The gradient of one step for one table."""

    ids: NDArray[np.int64]
    values: NDArray[Any]

    @classmethod
    def sum(cls, spec: TableSpec, parts: Sequence[tuple[NDArray[np.int64], NDArray[Any]]]) -> RowGradient:
        """Return the sum of gradients, each a pair of unique ids and a row of values for each of them."""
        ids, values = parts[0]
        if len(parts) > 1:
            found = find_occurrences(np.concatenate([ids for ids, _ in parts]))
            ids, values = found.unique, found.sum(np.concatenate([values for _, values in parts]))
        return cls(ids, np.ascontiguousarray(values, spec.dtype))


def row_gradient(spec: TableSpec, given: Any, lookups: Lookups) -> RowGradient:
    """Return the gradient that a model_fn returned for a table, with the values of each id summed.

    Raises
    ------
    ModelFnError
        If it is not a SparseGradient, or its values do not fit its ids.
    InputError
        If its ids are invalid.
    """
    if not isinstance(given, SparseGradient):
        raise ModelFnError(
            (f"the gradient of table {spec.name!r} must be a SparseGradient(ids, values), got {type(given).__name__}",)
        )
    ids, values = integer_ids(spec.name, given.ids), np.asarray(plain(given.values))
    expected = (*ids.shape, spec.dim)
    shared = (*ids.shape[:-1], 1, spec.dim)
    if values.shape not in (expected, shared) or values.dtype.kind not in "fiu":
        raise ModelFnError(
            (
                f"the values of the gradient of table {spec.name!r} are {values.dtype.name}{list(values.shape)}, "
                f"expected {spec.dtype}{list(expected)}: a row for each of its ids",
            )
        )
    if ids.ndim and values.strides[-2] == 0:  # repeated by `numpy.broadcast_to`
        values = values[..., :1, :]
    found = lookups.of(spec, ids).found
    rows = values.reshape(-1, spec.dim).astype(spec.dtype, copy=False)
    return RowGradient(found.unique, found.sum(rows))
