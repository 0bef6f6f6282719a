"""Checks the declarations of a data set in memory: names of columns, and ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from psflow.ps_runtime.columns.row_lifetime import MAX_COUNT
from psflow.ps_runtime.data.arrays import Columns
from psflow.ps_runtime.data.splittable import is_int
from psflow.ps_runtime.errors import did_you_mean
from psflow.ps_runtime.specs.schema import MATRIX
from psflow.ps_runtime.specs.schema_enforcement import id_fault


def faults_of_column_names(columns: tuple[str, ...], features: Columns) -> list[str]:
    """Return the faults of the names of the columns of the matrix."""
    if not columns:
        return []
    matrix = features.get(MATRIX) if isinstance(features, dict) else None
    if matrix is None or matrix.ndim != 2 or matrix.shape[1] != len(columns):
        shape = "none" if matrix is None else f"one of shape {list(matrix.shape)}"
        return [f"{len(columns)} columns are named: expected a matrix {MATRIX!r} of as many columns, got {shape}"]
    return []


def faults_of_ids(said: Mapping[str, Mapping[str, int]], features: Columns) -> Iterator[str]:
    """Yield the faults of the declarations of ids, `said` by the name of the argument, and of their values."""
    known = features if isinstance(features, dict) else {}
    for what, declared in said.items():
        if not isinstance(declared, Mapping):
            yield f"{what} is {declared!r}: expected a dict from names of features to ints"
            return
        for name, number in declared.items():
            if name not in known:
                yield f"{what} names {name!r}: expected a feature with a name{did_you_mean(name, known)}"
            if not is_int(number, 1) or number >= MAX_COUNT:
                yield f"{what} of {name!r} is {number!r}: expected an int >= 1, below 2**62"
    num_ids = said["num_ids"]
    yield from (
        f"{what} names {name!r}: expected its num_ids, too"
        for what, declared in said.items()
        for name in declared
        if name not in num_ids
    )
    for name, number in num_ids.items():
        if name not in known or not is_int(number, 1):
            continue
        if known[name].dtype.kind not in "iu":
            yield f"features[{name!r}] has dtype {known[name].dtype}: expected integers, as it is declared as ids"
        elif (fault := id_fault(known[name], number)) is not None:
            yield f"features[{name!r}] {fault}"
