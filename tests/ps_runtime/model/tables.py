"""Tables for tests: rows from a plain array."""

from __future__ import annotations

from typing import Any

import numpy as np

from psflow.ps_runtime.specs.variables import TableSpec


class ArrayRows:
    """A RowSource over whole arrays by table, which counts what it is asked for."""

    def __init__(self, **tables: Any) -> None:
        self.tables = {name: np.asarray(values) for name, values in tables.items()}
        self.asked: list[tuple[str, list[int]]] = []

    def rows(self, spec: TableSpec, ids: Any) -> Any:
        self.asked.append((spec.name, ids.tolist()))
        return self.tables[spec.name][ids]


def spec_of(name: str, num_rows: int, dim: int, **facts: Any) -> TableSpec:
    """Return the description of a table as embedding_lookup asks for it by default."""
    given = {"dtype": "float32", "optimizer": None, "initializer": {"name": "uniform", "scale": 0.05}, "seed": 0}
    return TableSpec(name, num_rows, dim, **(given | facts))
