"""Reads initial values of a model from a checkpoint of another one, mapping the rows of variables and tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.initializers import Initializer, variable_rng


@dataclass(frozen=True, eq=False)
class WarmSource:
    """The source of the values of one variable or table."""

    name: str
    previous: str
    places: NDArray[np.int64] | None = None
    axis: int = 0
    initializer: Initializer | None = None


@dataclass(frozen=True, eq=False)
class WarmStart:
    """The initial values of a job: variables and tables of a checkpoint."""

    model_dir: str
    step: int
    sources: tuple[WarmSource, ...]


class _Rows(NamedTuple):
    """Some rows of a variable or table of a checkpoint, with their positions."""

    places: NDArray[np.int64]
    values: NDArray[Any]


def warm_value(reader: CheckpointReader, source: WarmSource, initial: NDArray[Any], seed: int) -> NDArray[Any]:
    """Return the initial value of a variable. Blocks.

    Raises
    ------
    CheckpointError
        If bytes of the checkpoint are missing or have changed.
    UsageError
        If `WarmSource.initializer` gives another shape or dtype.
    """
    if source.initializer is None:
        value = initial.copy()
    else:
        drawn = np.asarray(source.initializer(initial.shape, initial.dtype, variable_rng(seed, source.name)))
        if (drawn.shape, drawn.dtype) != (initial.shape, initial.dtype):
            raise UsageError(
                (
                    f"the backup_initializer of {source.name!r} gave {drawn.dtype}{list(drawn.shape)}, expected "
                    f"{initial.dtype}{list(initial.shape)}",
                )
            )
        value = drawn.copy()
    if source.axis == 1:
        whole = reader.variable(source.previous).swapaxes(0, 1)
        _put(value.swapaxes(0, 1), source, _Rows(np.arange(len(whole)), whole))
        return value
    for rows in _rows(reader, source.previous):
        if value.shape:
            _put(value, source, rows)
        else:
            value[...] = rows.values
    return value


def warm_rows(
    reader: CheckpointReader, source: WarmSource, num_rows: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
    """Yield ids of a table of `num_rows`, and their initial weights; each block overwrites the previous one. Blocks.

    Rows that are not yielded start with the initial values of the table.

    Raises CheckpointError if bytes of the checkpoint are missing or have changed.
    """
    for rows in _rows(reader, source.previous):
        ids, found = _targets(source, rows.places, num_rows)
        yield ids, rows.values[found]


def _put(value: NDArray[Any], source: WarmSource, rows: _Rows) -> None:
    ids, found = _targets(source, rows.places, len(value))
    value[ids] = rows.values[found]


def _targets(
    source: WarmSource, places: NDArray[np.int64], num_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """Return the rows of the model, ascending, that are among some rows of the checkpoint, and their positions there.

    `places` are ascending.
    """
    wanted = np.arange(num_rows) if source.places is None else source.places
    at = np.minimum(np.searchsorted(places, wanted), max(0, len(places) - 1))
    is_there = places[at] == wanted if len(places) else np.zeros(num_rows, bool)
    ids = np.flatnonzero(is_there)
    return ids, at[ids]


def _rows(reader: CheckpointReader, name: str) -> Iterator[_Rows]:
    """Yield the rows of a variable at once, or the existing rows of a table in blocks."""
    tables = {table.name: table for table in reader.manifest.model.tables}
    if name in tables:
        for block in reader.table_rows(tables[name], ()):
            yield _Rows(block["ids"], block["weights"])
        return
    value = reader.variable(name)
    yield _Rows(np.arange(len(value) if value.shape else 1), value)
