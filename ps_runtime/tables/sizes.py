"""How large tables may be, judged before memory is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from psflow.ps_runtime.optimizers.base import Optimizer
from psflow.ps_runtime.specs.tables import TableSpec

__all__ = ["MAX_ROWS", "MAX_TABLES_BYTES", "push_count_dtype", "size_faults"]

MAX_ROWS = 2**36
"""Of one table: a checkpoint looks at a byte of every row, which takes some minutes for so many."""

MAX_TABLES_BYTES = 2**45
"""Of the addresses of all tables of a process, which a ps needs twice: a process has 2**47."""


def push_count_dtype(spec: TableSpec) -> np.dtype[np.unsignedinteger]:
    """Return what the pushes of a row are counted in, up to `admit_after`."""
    return np.min_scalar_type(spec.admit_after)


def size_faults(tables: Sequence[TableSpec], optimizers: Sequence[Optimizer]) -> Iterator[str]:
    """Say which tables have more rows than a ps has addresses for, each with the most that it may have.

    Examples
    --------
    >>> huge = TableSpec("items", 2**58, 4, "float32", None, {"name": "zeros"}, seed=1)
    >>> [fault] = size_faults([huge], [])
    >>> fault.partition(" where ")[0]
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
                f"table {spec.name!r} has {spec.num_rows:,} rows, at most {most:,} are possible where a row takes "
                f"{nbytes:,} bytes{beside}; ask for fewer ids (num_rows, num_ids or hash_buckets)"
            )
