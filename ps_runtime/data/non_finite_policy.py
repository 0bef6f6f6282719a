"""Applies the policy for missing, NaN and infinite cells to the result of an input_fn."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.arrays import Columns, map_columns, num_rows
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.non_finite import NonFinite, RecordSource, RefusedCellsError, non_finite_cells
from psflow.ps_runtime.errors import InputError

logger = logging.getLogger(__name__)

Batch = tuple[Columns, Columns | None]


def dataset_with_policy(dataset: Dataset, policy: NonFinite, where: str) -> Dataset:
    """Return a data set with `policy` applied, and the cells found in ``non_finite``.

    Raises
    ------
    RefusedCellsError
        If a row has such a cell and the policy is ``error``.
    InputError
        If every row has one and the policy is ``drop``.

    Notes
    -----
    Deterministic: the records of the result have the same numbers in every process, and after every resume.
    """
    source = dataset.source if dataset.source.name else replace(dataset.source, name=where)
    cells, has_one = non_finite_cells(dataset.features, dataset.labels, dataset.column_names, source)
    if not cells.num_rows:
        return dataset
    match policy:
        case "error":
            raise RefusedCellsError(cells.faults(), dataset.schema())
        case "drop":
            if has_one.all():
                raise InputError((*cells.lines(), f"{source.name}: non_finite is drop, which leaves no row"))
            features, labels = _rows((dataset.features, dataset.labels), ~has_one)
            if isinstance(labels, np.ndarray) and source.label_dtype is not None:
                labels = labels.astype(source.label_dtype)
            return replace(dataset, features=features, labels=labels, non_finite=replace(cells, is_dropped=True))
        case "keep":
            return replace(dataset, source=source, non_finite=cells)
        case unknown:
            assert_never(unknown)


def batches_with_policy(batches: Iterator[Batch], policy: NonFinite, where: str) -> Iterator[Batch]:
    """Yield the batches of a stream with `policy` applied; empty batches are skipped.

    Raises InputError if a row has such a cell and the policy is ``error``.

    Notes
    -----
    Logs the first rows that it leaves out, and their number at the end.
    """
    num_dropped = 0
    for number, batch in enumerate(batches):
        cells, has_one = non_finite_cells(*batch, source=RecordSource(f"batch {number} of {where}"))
        if not cells.num_rows:
            yield batch
            continue
        match policy:
            case "error":
                raise InputError(cells.faults())
            case "drop":
                if not num_dropped:
                    logger.warning("leaving out rows with a missing, NaN or infinite cell, such as %s", cells.first)
                num_dropped += cells.num_rows
                if not has_one.all():
                    yield _rows(batch, ~has_one)
            case "keep":
                yield batch
            case unknown:
                assert_never(unknown)
    if num_dropped:
        logger.warning("%s: left out %d rows with a missing, NaN or infinite cell", where, num_dropped)


def _rows(batch: Batch, kept: NDArray[np.bool_]) -> Batch:
    features, labels = batch
    assert len(kept) == num_rows(features)
    return (
        map_columns(lambda array: array[kept], features),
        None if labels is None else map_columns(lambda array: array[kept], labels),
    )
