"""Ids come from data and from peers: judged before they index memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError

__all__ = ["check_ids", "places_of"]


def check_ids(table: str, ids: NDArray[np.int64], num_rows: int) -> None:
    """Accept ids in ``[0, num_rows)``.

    Raises
    ------
    InputError
        If an id lies outside; names the first such id and its position.

    Examples
    --------
    >>> check_ids("items", np.array([0, 6]), 7)
    >>> check_ids("items", np.array([0, 7]), 7)
    Traceback (most recent call last):
    psflow.ps_runtime.errors.InputError: table 'items' has ids in [0, 7), got 7 at position 1
    """
    # as unsigned numbers negative ids are the largest, so one pass finds both kinds
    if ids.size and int(ids.astype(np.int64, copy=False).view(np.uint64).max()) >= num_rows:
        where = np.unravel_index(int(np.argmax((ids < 0) | (ids >= num_rows))), ids.shape)
        position = ", ".join(str(int(axis)) for axis in where)
        raise InputError((f"table {table!r} has ids in [0, {num_rows}), got {ids[where]} at position {position}",))


def places_of(table: str, ids: NDArray[np.int64], num_rows: int, shard: int, num_shards: int) -> NDArray[np.int64]:
    """Return where rows lie on their shard: ``id // num_shards``.

    Raises
    ------
    InputError
        If an id is not in ``[0, num_rows)``, or lies on another shard; names the first such id and its position.

    Examples
    --------
    >>> places_of("items", np.array([1, 4]), 7, 1, 3)
    array([0, 1])
    """
    check_ids(table, ids, num_rows)
    if num_shards == 1:
        return ids
    places = ids // num_shards
    is_strange = places * num_shards != ids - shard  # four times as fast as a remainder
    if is_strange.any():
        position = int(np.argmax(is_strange))
        strange = int(ids[position])
        raise InputError(
            (
                f"table {table!r}: id {strange} at position {position} lies on shard {strange % num_shards} "
                f"of {num_shards}, but came to shard {shard}",
            )
        )
    return places
