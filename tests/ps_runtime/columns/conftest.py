"""Learning from a table in one call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from psflow.ps_runtime.columns.grouping import Groups
from psflow.ps_runtime.columns.learner import Learner
from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import raw_type_of

Learn = Callable[..., Preprocessing]


def learned(
    table: pa.Table,
    options: Mapping[str, ColumnOptions] | None = None,
    groups: Groups | None = None,
    cuts: Sequence[int] = (),
    seed: int = 1,
    **others: Any,
) -> Preprocessing:
    """Return what is learned of a table that is cut before these rows."""
    columns = [RawColumn(field.name, raw_type_of(field.type)) for field in table.schema]
    learner = Learner(columns, options or {}, groups or {}, seed, **others)
    edges = [0, *sorted(cuts), table.num_rows]
    for first, end in itertools.pairwise(edges):
        learner.update(table.slice(first, end - first))
    return learner.finish()


@pytest.fixture(scope="session")
def learn() -> Learn:
    return learned
