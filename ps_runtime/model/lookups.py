"""The ids of lookups: each of them once, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.tables import TableSpec
from psflow.ps_runtime.tables.bounds import check_ids
from psflow.ps_runtime.tables.dedupe import Occurrences, find_occurrences

__all__ = ["ABSENT", "Lookup", "Lookups", "integer_ids"]

ABSENT = -1
"""Stands for no id."""


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """The ids of one array, their repetitions found; made by `of`."""

    ids: NDArray[Any]
    found: Occurrences
    present: NDArray[np.bool_] | None
    _flat: NDArray[np.int64]

    @classmethod
    def of(cls, spec: TableSpec, ids: NDArray[Any]) -> Self:
        """Find the repetitions among integer `ids`.

        Raises
        ------
        InputError
            If an id is neither one of the table nor -1.
        """
        flat = ids.astype(np.int64).reshape(-1)  # a copy: it tells whether `ids` were written to
        present = None
        # as unsigned numbers negative ids are the largest, so one pass shows whether all are rows
        if ids.size and int(flat.view(np.uint64).max()) >= spec.num_rows:
            _check(spec, ids)
            present = flat != ABSENT
        return cls(ids, find_occurrences(flat, present), present, flat)

    @property
    def unique(self) -> NDArray[np.int64]:
        """Each id that is present, once; ascending."""
        return self.found.unique

    def is_of(self, ids: NDArray[Any]) -> bool:
        """Return whether this was made of that very array, and none of its ids has changed."""
        return ids is self.ids and bool((ids.reshape(-1) == self._flat).all())


class Lookups:
    """The lookups of one batch: the repetitions among the ids of one array are searched once.

    Who pulls rows before a call of model_fn makes one of these for the batch and hands it on to the call, which then
    finds the very `Lookup` again. Not thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[int, Lookup] = {}

    def of(self, spec: TableSpec, ids: Any) -> Lookup:
        """Return the `Lookup` of an array of ids of a table.

        Raises
        ------
        InputError
            If they are no integers, or an id is neither in ``[0, num_rows)`` nor -1.
        """
        array = integer_ids(spec.name, ids)
        known = self._known.get(id(array))  # `known` holds its array, so that no other can have this id
        if known is None or not known.is_of(array):
            known = self._known[id(array)] = Lookup.of(spec, array)
        elif len(known.unique) and known.unique[-1] >= spec.num_rows:
            _check(spec, array)  # they were those of a larger table
        return known


def integer_ids(table: str, ids: Any) -> NDArray[Any]:
    """Return `ids` as an array, itself if it is one; InputError, with the name of the `table`, if of no integers."""
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
