"""Fixtures of the tests of tables: specs, shards of a table, and a model of it that is a dict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from psflow.ps_runtime.optimizers import (
    Adagrad,
    Adam,
    AdamW,
    Ftrl,
    GradientDescent,
    Momentum,
    NAdam,
    Optimizer,
    RMSProp,
    UpdateOperands,
)
from psflow.ps_runtime.specs.variables import TableSpec
from psflow.ps_runtime.tables.initial_rows import initial_rows
from psflow.ps_runtime.tables.table import Table
from tests.extending import load

RULES = [
    GradientDescent(learning_rate=0.1),
    Momentum(learning_rate=0.01, use_nesterov=True),
    Adagrad(learning_rate=0.05),
    Adam(learning_rate=0.01, amsgrad=True),
    AdamW(learning_rate=0.01),
    NAdam(learning_rate=0.01),
    RMSProp(learning_rate=0.01, momentum=0.9, centered=True),
    Ftrl(learning_rate=0.1, l1_regularization_strength=0.01),
    load("my_optimizer").Lion(learning_rate=0.01),
]


@pytest.fixture
def rules() -> list[Optimizer]:
    return RULES


@pytest.fixture(params=RULES, ids=lambda rule: type(rule).__name__)
def rule(request: pytest.FixtureRequest) -> Optimizer:
    return request.param


def spec_of(**given: Any) -> TableSpec:
    facts = {
        "name": "items",
        "num_rows": 97,
        "dim": 3,
        "dtype": "float32",
        "optimizer": 0,
        "initializer": {"name": "uniform", "scale": 0.05},
        "seed": 5,
    }
    return TableSpec(**(facts | given))


@pytest.fixture
def make_spec() -> Callable[..., TableSpec]:
    return spec_of


@dataclass
class Shards:
    """All shards of a table, as one."""

    spec: TableSpec
    rule: Optimizer | None
    num_shards: int = 1
    tables: list[Table] = field(init=False)

    def __post_init__(self) -> None:
        self.tables = [Table(self.spec, self.rule, shard, self.num_shards) for shard in range(self.num_shards)]

    def pull(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        rows = np.full((len(ids), self.spec.dim), np.nan, self.spec.dtype)
        for table, mine in self._split(ids):
            out = np.full((np.count_nonzero(mine), self.spec.dim), np.nan, self.spec.dtype)
            table.pull(ids[mine], out)
            rows[mine] = out
        return rows

    def push(self, ids: NDArray[np.int64], gradients: NDArray[Any], learning_rate: float, num_updates: int) -> None:
        for table, mine in self._split(ids):
            table.push(ids[mine], gradients[mine], learning_rate=learning_rate, num_updates=num_updates)

    def expire(self, num_updates: int) -> int:
        return sum(table.expire(num_updates) for table in self.tables)

    def copy(self, into: Shards | None = None) -> Shards:
        """Return a copy: `into`, which may hold other rows before, or a new one."""
        into = into or Shards(self.spec, self.rule, self.num_shards)
        for mine, theirs in zip(self.tables, into.tables, strict=True):
            mine.copy_into(theirs)
        return into

    def on(self, num_shards: int) -> Shards:
        """Return the same table on another number of shards, by way of its tensors."""
        other = Shards(self.spec, self.rule, num_shards)
        saved = [{name: a.copy() for name, a in table.tensors().items()} for table in self.tables]
        for table in other.tables:
            for tensors in saved:
                table.load(tensors)
        return other

    @property
    def num_created(self) -> int:
        return sum(table.num_created for table in self.tables)

    def _split(self, ids: NDArray[np.int64]) -> list[tuple[Table, NDArray[np.bool]]]:
        return [(table, ids % self.num_shards == table.shard) for table in self.tables]


@pytest.fixture
def make_shards() -> type[Shards]:
    return Shards


class DictTable:
    """A table without a trick: a dict of rows, of counts of pushes, and of the last push of each row."""

    def __init__(self, spec: TableSpec, rule: Optimizer) -> None:
        self.spec = spec
        self.rule = rule
        self.initial = initial_rows(spec, np.arange(spec.num_rows))
        self.fresh_slots = [np.full(spec.dim, rule.initial_slot(name), spec.dtype) for name in rule.slot_names]
        self.rows: dict[int, NDArray[Any]] = {}
        """Of each created row all parts, (1 + slots, dim)."""
        self.pushes: dict[int, int] = {}
        self.last_push: dict[int, int] = {}

    def pull(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        rows = [self.rows[i][0] if i in self.rows else self.initial[i] for i in ids.tolist()]
        return np.array(rows, self.spec.dtype).reshape(len(ids), self.spec.dim)

    def push(self, ids: NDArray[np.int64], gradients: NDArray[Any], learning_rate: float, num_updates: int) -> None:
        admitted = []
        for position, i in enumerate(ids.tolist()):
            self.pushes[i] = self.pushes.get(i, 0) + 1
            self.last_push[i] = num_updates
            if self.pushes[i] == self.spec.admit_after:
                self.rows[i] = np.stack([self.initial[i], *self.fresh_slots])
            if i in self.rows:
                admitted.append(position)
        touched = ids[admitted].tolist()
        if not touched:
            return
        weights, *slots = np.stack([self.rows[i] for i in touched], axis=1).copy()
        self.rule.update(
            UpdateOperands(
                weights.reshape(-1),
                gradients[admitted].reshape(-1),
                {name: slot.reshape(-1) for name, slot in zip(self.rule.slot_names, slots, strict=True)},
                np.full(weights.size, np.nan, weights.dtype),
                learning_rate=learning_rate,
                num_updates=num_updates,
            )
        )
        self.rows.update(zip(touched, np.stack([weights, *slots], axis=1), strict=True))

    def expire(self, num_updates: int) -> int:
        if self.spec.expire_after_steps is None:
            return 0
        before = len(self.rows)
        for i in [i for i, last in self.last_push.items() if num_updates - last >= self.spec.expire_after_steps]:
            del self.pushes[i], self.last_push[i]
            self.rows.pop(i, None)
        return before - len(self.rows)


@pytest.fixture
def make_dict_table() -> type[DictTable]:
    return DictTable
