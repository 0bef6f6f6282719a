"""What a manifest may say of sparse tables: which specs, and which tensors of them in each shard file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from psflow.ps_runtime.checkpoint.entries import TableEntry
from psflow.ps_runtime.errors import did_you_mean
from psflow.ps_runtime.specs.tables import TableSpec
from psflow.ps_runtime.specs.variables import ModelSpec
from psflow.ps_runtime.tables.initial_rows import initializer_faults

__all__ = [
    "CANDIDATES",
    "IDS",
    "WEIGHTS",
    "TablePart",
    "expected_tensors",
    "parts_of",
    "table_faults",
    "table_spec_faults",
]

IDS, WEIGHTS, LAST_PUSH = "ids", "weights", "last_push"
CANDIDATES = "candidate_"
"""Before the names of the tensors that are about the rows still to be admitted."""

_DTYPES = ("float16", "float32", "float64")


TablePart = Mapping[str, TableEntry]
"""What one shard file holds of one table, by the name of the tensor."""


def parts_of(entries: Iterable[TableEntry]) -> dict[tuple[str, int], dict[str, TableEntry]]:
    """Return the parts of tables by (table, shard)."""
    parts: dict[tuple[str, int], dict[str, TableEntry]] = {}
    for entry in entries:
        parts.setdefault((entry.table, entry.shard), {})[entry.tensor] = entry
    return parts


def table_spec_faults(model: ModelSpec) -> list[str]:
    """Say in sentences which tables of `model` cannot be."""
    faults = [f"{table} cannot be" for table in model.tables if not _can_be(table, len(model.optimizers))]
    names = [*(variable.name for variable in model.variables), *(table.name for table in model.tables)]
    return faults or (["two variables or tables have one name"] if len(set(names)) < len(names) else [])


def table_faults(model: ModelSpec, num_shards: int, entries: Sequence[TableEntry]) -> list[str]:
    """Say in sentences what of `entries` contradicts itself or the tables of `model`, which can be."""
    tables = {table.name: table for table in model.tables}
    strange = sorted({entry.table for entry in entries} - tables.keys())
    if strange:
        return [f"no table {name!r}{did_you_mean(name, tables)}" for name in strange]
    parts = parts_of(entries)
    faults = ["a tensor of a table is listed twice"] if sum(map(len, parts.values())) < len(entries) else []
    for name, table in tables.items():
        slots = set()
        for shard in range(num_shards):
            part = parts.get((name, shard), {})
            faults += [f"table {name!r}, shard {shard}: {fault}" for fault in _part_faults(table, part, num_shards)]
            slots.add(frozenset(part))
        if len(slots) > 1:
            faults.append(f"table {name!r} has other tensors in one shard than in another")
    return faults


def _can_be(table: TableSpec, num_optimizers: int) -> bool:
    numbers = [(table.num_rows, 0), (table.dim, 1), (table.seed, 0), (table.admit_after, 1)]
    if table.expire_after_steps is not None:
        numbers.append((table.expire_after_steps, 1))
    return (
        isinstance(table.name, str)
        and table.dtype in _DTYPES
        and all(type(number) is int and least <= number < 1 << 64 for number, least in numbers)
        and (table.optimizer is None or table.optimizer in range(num_optimizers))
        and isinstance(table.initializer, Mapping)
        and not initializer_faults(table.initializer)
    )


def _part_faults(table: TableSpec, part: TablePart, num_shards: int) -> list[str]:
    expected = expected_tensors(table, part)
    if missing := sorted(expected.keys() - part.keys()):
        return [f"{', '.join(missing)} missing"]
    faults = []
    for name, entry in part.items():
        dtype, shape = expected.get(name, expected[WEIGHTS])  # all others are slots
        if (entry.dtype, entry.shape) != (dtype, shape):
            faults.append(f"{name} is {entry.dtype}{list(entry.shape)}, expected {dtype}{list(shape)}")
    most = table.num_rows_on(part[IDS].shard, num_shards)
    claimed = _num_rows(part, IDS) + _num_rows(part, CANDIDATES + IDS)
    return [*faults, f"{claimed} rows, at most {most} can be there"] if claimed > most else faults


def expected_tensors(table: TableSpec, part: TablePart) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtype and shape of each tensor that `part` must have; beside them it has slots, as the weights are."""
    num_rows, num_candidates = _num_rows(part, IDS), _num_rows(part, CANDIDATES + IDS)
    expected = {IDS: ("int64", (num_rows,)), WEIGHTS: (table.dtype, (num_rows, table.dim))}
    if table.expire_after_steps is not None:
        expected[LAST_PUSH] = ("int64", (num_rows,))
    if table.admit_after > 1:
        names = (IDS, "pushes") if table.expire_after_steps is None else (IDS, "pushes", LAST_PUSH)
        expected |= {CANDIDATES + name: ("int64", (num_candidates,)) for name in names}
    return expected


def _num_rows(part: TablePart, name: str) -> int:
    return part[name].shape[0] if name in part and part[name].shape else 0
