"""The rows of a table as a checkpoint holds them: read some at a time, judged, given to a `Table`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.entries import TableEntry
from psflow.ps_runtime.checkpoint.finite_values import fault_of_table
from psflow.ps_runtime.checkpoint.table_faults import CANDIDATES, IDS, TablePart, expected_tensors
from psflow.ps_runtime.errors import CheckpointError
from psflow.ps_runtime.specs.tables import TableSpec

__all__ = ["Read", "table_blocks"]

BLOCK_BYTES = 32 << 20
"""What is read in one go of the rows of a table: no more of it need be in memory twice."""

Read = Callable[[dict[TableEntry, NDArray[Any]], int], None]
"""Fills arrays with rows of tensors that lie in one file; takes the first row too."""

Block = dict[str, NDArray[Any]]


def table_blocks(
    spec: TableSpec, part: TablePart, num_shards: int, slots: Collection[str], read: Read, path: str
) -> Iterator[Block]:
    """Yield what one shard file holds of a table, as `Table.load` takes it; each block overwrites the one before.

    Raises
    ------
    CheckpointError
        If a slot is not there, ids are out of order, out of range or of another shard, push counts are out of range,
        or a weight or a slot is NaN or infinite.
    """
    if missing := sorted(set(slots) - part.keys()):
        raise CheckpointError(path, f"table {spec.name!r} has no slot {', '.join(missing)}; use another checkpoint")
    names = expected_tensors(spec, part).keys() | set(slots)
    candidates = {name for name in names if name.startswith(CANDIDATES)}
    empty = {name: np.empty((0, *part[name].shape[1:]), part[name].dtype) for name in names}
    for some in (names - candidates, candidates):
        last_id = -1
        for block in _blocks({name: part[name] for name in some}, read):
            ids = block[CANDIDATES + IDS if some is candidates else IDS]
            if not _fit(ids, last_id, spec.num_rows, part[IDS].shard, num_shards):
                raise CheckpointError(
                    path,
                    f"the ids of table {spec.name!r} are not ascending, not below {spec.num_rows}, "
                    "or belong to another shard; use another checkpoint",
                )
            pushes = block.get(CANDIDATES + "pushes")
            if pushes is not None and not ((pushes > 0) & (pushes < spec.admit_after)).all():
                raise CheckpointError(
                    path,
                    f"the push counts of table {spec.name!r} are out of range, expected 1 to {spec.admit_after - 1}; "
                    "use another checkpoint",
                )
            if fault := fault_of_table(spec.name, block):
                raise CheckpointError(path, f"{fault}; use another checkpoint")
            last_id = int(ids[-1])
            yield empty | block


def _blocks(entries: dict[str, TableEntry], read: Read) -> Iterator[Block]:
    if not entries:
        return
    num_rows = min(entry.shape[0] for entry in entries.values())
    row_nbytes = sum(entry.nbytes // num_rows for entry in entries.values()) if num_rows else 1
    size = max(1, BLOCK_BYTES // row_nbytes)
    memory = {name: np.empty((min(size, num_rows), *entry.shape[1:]), entry.dtype) for name, entry in entries.items()}
    for start in range(0, num_rows, size):
        block = {name: array[: num_rows - start] for name, array in memory.items()}
        read({entries[name]: array for name, array in block.items()}, start)
        yield block


def _fit(ids: NDArray[np.int64], last_id: int, num_rows: int, shard: int, num_shards: int) -> bool:
    is_ascending = int(ids[0]) > last_id and int(ids[-1]) < num_rows and bool((ids[1:] > ids[:-1]).all())
    return is_ascending and bool((ids % num_shards == shard).all())
