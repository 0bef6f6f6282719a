"""Checks ids, which come from data and from peers, before they index memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.optimizers.base import Optimizer
from psflow.ps_runtime.specs.variables import TableSpec


def check_ids(table: str, ids: NDArray[np.int64], num_rows: int) -> None:
    """Accept ids in ``[0, num_rows)``.

    Raises InputError if an id lies outside; names the first such id and its position.

    Examples
    --------
    >>> check_ids("items", np.array([0, 6]), 7)
    >>> check_ids("items", np.array([0, 7]), 7)
    Traceback (most recent call last):
    psflow.ps_runtime.errors.InputError: table 'items' has ids in [0, 7), got 7 at position 1
    """
    # as unsigned numbers negative ids are the largest, so one pass finds both faults
    if ids.size and int(ids.astype(np.int64, copy=False).view(np.uint64).max()) >= num_rows:
        where = np.unravel_index(int(np.argmax((ids < 0) | (ids >= num_rows))), ids.shape)
        position = ", ".join(str(int(axis)) for axis in where)
        raise InputError((f"table {table!r} has ids in [0, {num_rows}), got {ids[where]} at position {position}",))


def places_of(table: str, ids: NDArray[np.int64], num_rows: int, shard: int, num_shards: int) -> NDArray[np.int64]:
    """Return the positions of rows on their shard: ``id // num_shards``.

    Raises InputError if an id is not in ``[0, num_rows)``, or lies on another shard; names the first such id and its
    position.

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
                f"of {num_shards}, but was sent to shard {shard}",
            )
        )
    return places


MAX_ROWS = 2**36
"""Maximum rows of a table: a checkpoint inspects a byte of every row, which takes minutes for this many."""

MAX_TABLES_BYTES = 2**45
"""Maximum address space of all tables of a process, which a ps needs twice: a process has 2**47."""


def push_count_dtype(spec: TableSpec) -> np.dtype[np.unsignedinteger]:
    """Return the dtype that counts the pushes of a row, up to `admit_after`."""
    return np.min_scalar_type(spec.admit_after)


def size_faults(tables: Sequence[TableSpec], optimizers: Sequence[Optimizer]) -> Iterator[str]:
    """Yield the tables with more rows than a ps can address, each with the maximum.

    Examples
    --------
    >>> huge = TableSpec("items", 2**58, 4, "float32", None, {"name": "zeros"}, seed=1)
    >>> [fault] = size_faults([huge], [])
    >>> fault.partition(" if ")[0]
    "table 'items' has 288,230,376,151,711,744 rows, at most 68,719,476,736 are possible"
    """
    for spec in tables:
        num_slots = 0 if spec.optimizer is None else len(optimizers[spec.optimizer].slot_names)
        nbytes = spec.row_nbytes * (1 + num_slots) + push_count_dtype(spec).itemsize
        nbytes += 0 if spec.expire_after_steps is None else 8
        most = min(MAX_ROWS, MAX_TABLES_BYTES // len(tables) // nbytes)
        if spec.num_rows > most:
            beside = f" and the model has {len(tables)} tables" if len(tables) > 1 else ""
            yield (
                f"table {spec.name!r} has {spec.num_rows:,} rows, at most {most:,} are possible if a row takes "
                f"{nbytes:,} bytes{beside}; use fewer ids (num_rows, num_ids or hash_buckets)"
            )
