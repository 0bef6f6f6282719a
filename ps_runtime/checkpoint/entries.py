"""Entries of a manifest: shard files and the tensors in them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from psflow.ps_runtime.errors import did_you_mean
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec
from psflow.ps_runtime.tables.initial_rows import initializer_faults

_CHECKSUM = re.compile(r"crc32:[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file of a checkpoint: the part of shard `index` of `num_shards`."""

    index: int
    num_shards: int
    nbytes: int
    checksum: str

    @property
    def name(self) -> str:
        """The file's name in its directory; built from numbers only, so that it cannot leave the directory."""
        return f"shard_{self.index:05d}_of_{self.num_shards:05d}.safetensors"

    def to_facts(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        return {"name": self.name, **asdict(self)}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> ShardFile:
        """Decode the result of `to_facts`; ValueError if it is invalid."""
        fields_of(facts, ("name", "index", "num_shards", "nbytes", "checksum"), "shard file")
        if not isinstance(facts["checksum"], str) or not _CHECKSUM.fullmatch(facts["checksum"]):
            raise ValueError(f"shard file: checksum {facts['checksum']!r}, expected crc32: and 8 hexadecimal digits")
        index, num_shards, nbytes = (
            whole(facts[field], f"shard file: {field}") for field in ("index", "num_shards", "nbytes")
        )
        shard = cls(index, num_shards, nbytes, facts["checksum"])
        if facts["name"] != shard.name:
            raise ValueError(f"shard file: name {facts['name']!r}, expected {shard.name!r}")
        return shard


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Rows ``[row_start, row_stop)`` of a variable, or of one of its slots, stored as one tensor of a shard file."""

    variable: str
    slot: str | None
    row_start: int
    row_stop: int
    dtype: str
    shape: tuple[int, ...]
    shard: int

    @property
    def key(self) -> str:
        """The tensor's name inside its shard file, such as ``dense/kernel@512/m``."""
        key = f"{self.variable}@{self.row_start}"
        return key if self.slot is None else f"{key}/{self.slot}"

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def to_facts(self) -> list[Any]:
        """Return the entry as plain data, without field names to save space."""
        return [self.variable, self.slot, self.row_start, self.row_stop, self.dtype, list(self.shape), self.shard]

    @classmethod
    def from_facts(cls, facts: Sequence[Any]) -> TensorEntry:
        """Decode the result of `to_facts`; ValueError if it is invalid."""
        if not isinstance(facts, list) or len(facts) != 7:
            raise ValueError(f"tensor: expected a list of 7, got {facts!r}")
        variable, slot, row_start, row_stop, dtype, shape, shard = facts
        if not isinstance(variable, str) or not isinstance(slot, str | None) or not isinstance(dtype, str):
            raise ValueError(f"tensor: expected names, got {variable!r}, {slot!r}, {dtype!r}")
        return cls(
            variable,
            slot,
            whole(row_start, "tensor: row_start"),
            whole(row_stop, "tensor: row_stop"),
            dtype,
            tuple(whole(n, "tensor: shape") for n in shape),
            whole(shard, "tensor: shard"),
        )

    def faults(self, variable: VariableSpec) -> list[str]:
        """Return sentences on contradictions to `variable`."""
        faults = []
        if not self.row_start <= self.row_stop <= variable.num_rows:
            faults.append(f"rows [{self.row_start}, {self.row_stop}) of {variable.num_rows}")
        expected = (self.row_stop - self.row_start, *variable.shape[1:]) if variable.shape else ()
        if (self.dtype, self.shape) != (variable.dtype, expected):
            faults.append(f"{self.dtype}{list(self.shape)}, expected {variable.dtype}{list(expected)}")
        return [f"tensor of variable {self.variable!r}: {fault}" for fault in faults]


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One tensor of a table in a shard file, with a name of `Table.tensors`."""

    table: str
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    shard: int

    @property
    def key(self) -> str:
        """The tensor's name inside its shard file, such as ``items#weights``; unlike the name of any variable."""
        return f"{self.table}#{self.tensor}"

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def to_facts(self) -> list[Any]:
        """Return the entry as plain data."""
        return [self.table, self.tensor, self.dtype, list(self.shape), self.shard]

    @classmethod
    def from_facts(cls, facts: Sequence[Any]) -> TableEntry:
        """Decode the result of `to_facts`; ValueError if it is invalid."""
        if not isinstance(facts, list) or len(facts) != 5:
            raise ValueError(f"tensor of a table: expected a list of 5, got {facts!r}")
        table, tensor, dtype, shape, shard = facts
        if not all(isinstance(name, str) for name in (table, tensor, dtype)):
            raise ValueError(f"tensor of a table: expected names, got {table!r}, {tensor!r}, {dtype!r}")
        lengths = tuple(whole(n, "tensor of a table: shape") for n in shape)
        return cls(table, tensor, dtype, lengths, whole(shard, "tensor of a table: shard"))


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """A ps's description of the shard file that it wrote: its part of the manifest."""

    file: ShardFile
    tensors: tuple[TensorEntry, ...]
    tables: tuple[TableEntry, ...] = ()

    def to_facts(self) -> dict[str, Any]:
        """Return the record as plain data for JSON."""
        return {
            "file": self.file.to_facts(),
            "tensors": [entry.to_facts() for entry in self.tensors],
            "tables": [entry.to_facts() for entry in self.tables],
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> ShardRecord:
        """Decode the result of `to_facts`; ValueError or TypeError if it is invalid."""
        fields_of(facts, ("file", "tensors", "tables"), "shard record")
        return cls(
            ShardFile.from_facts(facts["file"]),
            tuple(TensorEntry.from_facts(entry) for entry in facts["tensors"]),
            tuple(TableEntry.from_facts(entry) for entry in facts["tables"]),
        )


def whole(value: Any, what: str) -> int:
    """Return `value` if it is a whole number of at least 0; else raise ValueError."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{what}: expected a whole number >= 0, got {value!r}")
    return value


def fields_of(facts: Any, expected: Sequence[str], what: str) -> None:
    """Raise ValueError unless `facts` is a mapping with exactly the `expected` keys."""
    if not isinstance(facts, Mapping) or set(facts) != set(expected):
        got = sorted(facts) if isinstance(facts, Mapping) else repr(facts)
        raise ValueError(f"{what}: expected {', '.join(expected)}; got {got}")


IDS, WEIGHTS, LAST_PUSH = "ids", "weights", "last_push"
CANDIDATES = "candidate_"
"""Prefix of the names of the tensors on rows that are not admitted yet."""

_DTYPES = ("float16", "float32", "float64")


TablePart = Mapping[str, TableEntry]
"""The tensors of one table in one shard file, by name."""


def parts_of(entries: Iterable[TableEntry]) -> dict[tuple[str, int], dict[str, TableEntry]]:
    """Return the parts of tables by (table, shard)."""
    parts: dict[tuple[str, int], dict[str, TableEntry]] = {}
    for entry in entries:
        parts.setdefault((entry.table, entry.shard), {})[entry.tensor] = entry
    return parts


def table_spec_faults(model: ModelSpec) -> list[str]:
    """Return sentences on the invalid tables of `model`."""
    faults = [f"{table} is invalid" for table in model.tables if not _can_be(table, len(model.optimizers))]
    names = [*(variable.name for variable in model.variables), *(table.name for table in model.tables)]
    return faults or (["two variables or tables have the same name"] if len(set(names)) < len(names) else [])


def table_faults(model: ModelSpec, num_shards: int, entries: Sequence[TableEntry]) -> list[str]:
    """Return sentences on contradictions within `entries`, or with the valid tables of `model`."""
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
    return [*faults, f"{claimed} rows, expected at most {most}"] if claimed > most else faults


def expected_tensors(table: TableSpec, part: TablePart) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return dtype and shape of each tensor that `part` must have; its slots have those of the weights."""
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
