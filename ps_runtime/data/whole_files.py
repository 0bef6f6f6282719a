"""Reads tabular files into arrays in memory, for models that were trained on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.reading import NUMBERS
from psflow.ps_runtime.columns.values import numbers_of
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.files import MAX_FILE_BYTES
from psflow.ps_runtime.data.input_scan import invalid_cells, source_of
from psflow.ps_runtime.data.invalid_cells import CountedCells
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import MATRIX, InputSchema
from psflow.ps_runtime.tabular_files.scan import Scan


def whole_dataset(given: RecordInput, schema: InputSchema, where: str, *, needs_labels: bool) -> Dataset:
    """Return all records of some files.

    Raises
    ------
    InputError
        If a file cannot be read, lacks a column, has strings instead of numbers, if all are too large, or a part of
        them is requested; for an invalid cell that ``invalid`` does not treat as missing.
    """
    if given.part is not None:
        raise InputError((f"part {given.part} is for models that were trained on tabular files; leave it out",))
    if given.invalid == "drop":
        what = f"invalid of {where} is drop, which is for models that were trained on tabular files"
        raise InputError(
            (f"{what}; set it to missing, and non_finite to drop, which leaves out rows with a missing value",)
        )
    own = None if given.label is None else given.label.column
    label = (own or schema.label) if needs_labels else None

    def chosen(known: Sequence[str]) -> list[str]:
        there = frozenset(known)
        others = [name for name in schema.whole.table_columns if name in there]  # some mode may read them
        every = [name for name in known if name not in (own, label, *given.key_columns)]
        names = list(dict.fromkeys([*schema.table_columns, *others]) if schema.table_columns else every)
        return names if label is None else [*names, label]

    scan, known = given.scan(chosen)
    if scan.num_bytes > MAX_FILE_BYTES:
        fault = f"have {scan.num_bytes} bytes: at most {MAX_FILE_BYTES} are read for a model that was trained on arrays"
        raise InputError((f"the files {fault}",))
    if not_numbers := [column for column in scan.columns if column.type not in NUMBERS]:
        raise InputError(tuple(f"column {column.name!r} is {column.type}: expected numbers" for column in not_numbers))
    columns, counted = _columns(scan)
    labels = None if label is None else columns.pop(label)
    cells = replace(
        invalid_cells(counted, scan.index(), given.invalid), has_strings=False
    )  # such a model reads no strings
    if faults := cells.faults(where, may_drop=False):
        raise InputError(faults)
    source = source_of(scan.index(), None if labels is None else _label_dtype(schema))
    used = {*columns, label, *given.key_columns}
    unused = tuple(name for name in known if name not in used)
    if schema.table_columns and not schema.columns:
        dataset = Dataset(columns, labels, label=label, unused=unused, source=source)
    else:
        matrix = np.stack(list(columns.values()), axis=1)
        dataset = Dataset({MATRIX: matrix}, labels, columns=tuple(columns), label=label, unused=unused, source=source)
    return given.batching.applied_to(dataset)


def _columns(scan: Scan) -> tuple[dict[str, NDArray[Any]], CountedCells]:
    parts: dict[str, list[NDArray[Any]]] = {column.name: [] for column in scan.columns}
    counted = CountedCells()
    for chunk in scan:
        counted.add(chunk.table, chunk.invalid)
        for name, found in parts.items():
            found.append(numbers_of(chunk.table.column(name).combine_chunks()))
    return {name: np.concatenate(found) for name, found in parts.items()}, counted


def _label_dtype(schema: InputSchema) -> str | None:
    """Return the dtype of labels without missing values; None: as stored."""
    is_whole = bool(schema.labels) and np.dtype(schema.labels[0].dtype).kind in "iu"
    return "int64" if is_whole else None
