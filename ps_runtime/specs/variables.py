"""Descriptions of a model: its variables, tables and optimizers, frozen."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from psflow.ps_runtime.columns.row_lifetime import RowLifetime
from psflow.ps_runtime.specs.schema import InputSchema

ASKED = ("num_rows", "dim", "dtype", "initializer", "admit_after", "expire_after_steps")
"""The properties that a model_fn requests of a table; seed and optimizer are set elsewhere."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One sparse table. Row `id` is on shard ``id % num_ps``, at position ``id // num_ps``."""

    name: str
    num_rows: int
    dim: int
    dtype: str
    optimizer: int | None
    initializer: Mapping[str, Any]
    seed: int
    admit_after: int = 1
    expire_after_steps: int | None = None

    @property
    def row_nbytes(self) -> int:
        """Size of a row's weights in bytes."""
        return self.dim * np.dtype(self.dtype).itemsize

    def num_rows_on(self, shard: int, num_shards: int) -> int:
        """Return the number of rows on one of the shards.

        Examples
        --------
        >>> spec = TableSpec("items", 7, 4, "float32", 0, {"name": "zeros"}, seed=1)
        >>> [spec.num_rows_on(shard, 3) for shard in range(3)]
        [3, 2, 2]
        """
        return max(0, -(-(self.num_rows - shard) // num_shards))

    def differences(self, other: TableSpec) -> list[str]:
        """Return the requested properties in which `other` differs, such as ``dim 8, expected 16``."""
        pairs = [(name, getattr(other, name), getattr(self, name)) for name in ASKED]
        return [f"{name} {got!r}, expected {expected!r}" for name, got, expected in pairs if got != expected]


@dataclass(frozen=True, slots=True)
class VariableSpec:
    """One variable of a model."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    optimizer: int | None
    num_slices: int | None = None

    @property
    def nbytes(self) -> int:
        """Size of the variable in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def num_rows(self) -> int:
        """Length of axis 0; a scalar has one row."""
        return self.shape[0] if self.shape else 1


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """All variables and tables of a model in the order of their creation, its optimizers, and its input schema.

    `optimizers` holds `Optimizer.config()` mappings without learning rates, which travel with each push. `schema` is
    that of the training input; None for a model that was built without one.
    """

    variables: tuple[VariableSpec, ...]
    optimizers: tuple[Mapping[str, Any], ...]
    tables: tuple[TableSpec, ...] = ()
    schema: InputSchema | None = None

    def to_json(self) -> str:
        """Return the description as canonical JSON."""
        return json.dumps(
            {
                "variables": [asdict(v) for v in self.variables],
                "optimizers": [dict(o) for o in self.optimizers],
                "tables": [asdict(t) for t in self.tables],
                "schema": None if self.schema is None else self.schema.to_facts(),
            },
            sort_keys=True,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> ModelSpec:
        """Decode the result of `to_json`."""
        data = json.loads(text)
        variables = tuple(VariableSpec(**{**v, "shape": tuple(v["shape"])}) for v in data["variables"])
        tables = tuple(TableSpec(**t) for t in data["tables"])
        schema = None if data["schema"] is None else InputSchema.from_facts(data["schema"])
        return cls(variables, tuple(data["optimizers"]), tables, schema)

    @property
    def train_input(self) -> InputSchema | None:
        """The schema of the whole training input, with the features that the model does not read."""
        return None if self.schema is None else self.schema.whole

    @property
    def digest(self) -> int:
        """Return 64 bits that differ for different models; each data-plane message carries them."""
        return int.from_bytes(hashlib.blake2b(self.to_json().encode(), digest_size=8).digest(), "little")

    @property
    def nbytes(self) -> int:
        """Size of all variables in bytes, without the tables."""
        return sum(v.nbytes for v in self.variables)

    def differences(self, other: ModelSpec) -> list[str]:
        """Return sentences on the differences of `other`: variables, tables, optimizers, input."""
        return sorted(
            [*self._variable_differences(other), *self._table_differences(other), *self._input_differences(other)]
        )

    def _variable_differences(self, other: ModelSpec) -> list[str]:
        mine = {v.name: v for v in self.variables}
        theirs = {v.name: v for v in other.variables}
        lines = [f"variable {name!r} is missing" for name in mine if name not in theirs]
        lines += [f"variable {name!r} is new" for name in theirs if name not in mine]
        for name in mine.keys() & theirs.keys():
            a, b = mine[name], theirs[name]
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                lines.append(f"variable {name!r} is {b.dtype}{list(b.shape)}, expected {a.dtype}{list(a.shape)}")
            elif self._optimizer_of(a) != other._optimizer_of(b):
                lines.append(
                    f"variable {name!r} is trained by {other._optimizer_of(b)}, expected {self._optimizer_of(a)}"
                )
        return lines

    def _table_differences(self, other: ModelSpec) -> list[str]:
        mine = {t.name: t for t in self.tables}
        theirs = {t.name: t for t in other.tables}
        lines = [f"table {name!r} is missing" for name in mine if name not in theirs]
        lines += [f"table {name!r} is new" for name in theirs if name not in mine]
        for name in mine.keys() & theirs.keys():
            a, b = mine[name], theirs[name]
            if differences := a.differences(b):
                lines.append(f"table {name!r} has {'; '.join(differences)}")
            elif a.seed != b.seed:
                lines.append(
                    f"table {name!r} has another seed, so its rows would start with other values; "
                    "set tf_random_seed to its earlier value"
                )
            elif self._optimizer_of(a) != other._optimizer_of(b):
                lines.append(f"table {name!r} is trained by {other._optimizer_of(b)}, expected {self._optimizer_of(a)}")
        return lines

    def _input_differences(self, other: ModelSpec) -> list[str]:
        if self.schema is None or other.schema is None:
            return ["the schema of the training input is unknown"] * (self.schema != other.schema)
        return [f"training input: {line}" for line in self.schema.differences(other.schema)]

    def _optimizer_of(self, part: VariableSpec | TableSpec) -> Mapping[str, Any] | None:
        return None if part.optimizer is None else self.optimizers[part.optimizer]


def unused_lifetimes(schema: InputSchema, tables: Iterable[TableSpec]) -> Iterator[str]:
    """Yield sentences on features with a lifetime that no table of the model has: it would have no effect."""
    found = {RowLifetime(table.admit_after, table.expire_after_steps) for table in tables}
    for spec in schema.features:
        if spec.lifetime.is_limited and spec.lifetime not in found:
            yield (
                f"feature {spec.name!r} has {spec.lifetime}, but model_fn looks up no sparse table with that lifetime; "
                "give it to embedding_lookup as admit_after and expire_after_steps, or leave it out of the input"
            )
