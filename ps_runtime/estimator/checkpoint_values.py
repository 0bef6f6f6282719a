"""Variables and rows of tables, looked up in one checkpoint."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.estimator.arguments import check_name
from psflow.ps_runtime.model.lookups import integer_ids
from psflow.ps_runtime.model.scope import GLOBAL_STEP
from psflow.ps_runtime.model.values import ModelValues
from psflow.ps_runtime.specs.tables import TableSpec

__all__ = ["table_rows", "variable_names", "variable_value"]

MAX_WHOLE_TABLE_BYTES = 2**26


def variable_names(reader: CheckpointReader) -> list[str]:
    """Return the names of the variables and tables, and ``global_step``, sorted."""
    model = reader.manifest.model
    return sorted([GLOBAL_STEP, *(v.name for v in model.variables), *(t.name for t in model.tables)])


def variable_value(reader: CheckpointReader, name: str) -> NDArray[Any]:
    """Return a variable, or a whole table; UsageError if there is no such variable, or it is a larger table."""
    check_name(name)
    tables = {table.name: table for table in reader.manifest.model.tables}
    if name not in tables:
        _check_name(name, variable_names(reader), "variable")
        return np.array(reader.manifest.step) if name == GLOBAL_STEP else reader.variable(name)
    spec = tables[name]
    if spec.num_rows * spec.row_nbytes > MAX_WHOLE_TABLE_BYTES:
        raise UsageError(
            (
                f"table {name!r} has {spec.num_rows} rows of {spec.row_nbytes} bytes, too many to return at "
                f"once; read those you need: estimator.get_table_rows({name!r}, ids)",
            )
        )
    return _rows(reader, spec, np.arange(spec.num_rows))


def table_rows(reader: CheckpointReader, name: str, ids: Any) -> NDArray[Any]:
    """Return rows of a table; UsageError if there is no such table, or ids are none of its rows."""
    check_name(name)
    tables = {table.name: table for table in reader.manifest.model.tables}
    _check_name(name, tables, "table")
    return _rows(reader, tables[name], integer_ids(name, ids))


def _rows(reader: CheckpointReader, spec: TableSpec, ids: NDArray[Any]) -> NDArray[Any]:
    rows = ModelValues({}, {spec.name: reader.table(spec)}).rows(spec, ids.astype(np.int64).reshape(-1))
    return rows.reshape((*ids.shape, spec.dim))


def _check_name(name: str, known: Collection[str], what: str) -> None:
    if name not in known:
        raise UsageError((f"there is no {what} {name!r}{did_you_mean(name, known)}",))
