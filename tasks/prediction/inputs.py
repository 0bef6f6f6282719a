"""Opens the input of a prediction in the format of its model."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.files import check_file
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.non_finite_policy import dataset_with_policy
from psflow.ps_runtime.data.record_formats import TabularFiles
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.data.whole_files import whole_dataset
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.listing import list_files
from psflow.tasks.prediction.array_rows import ArrayRows
from psflow.tasks.prediction.options import PredictInvalid
from psflow.tasks.prediction.record_rows import RecordRows
from psflow.tasks.prediction.rows import PredictionRows


@dataclass(frozen=True, slots=True)
class PredictionInput:
    """Location and reading options of the input of a prediction."""

    kind: type[Format]
    location: str
    non_finite: NonFinite = "keep"
    invalid: PredictInvalid = "error"

    def __str__(self) -> str:
        """Return the location for display, without credentials."""
        is_file = self.kind.reads_a_file()
        return shown_path(self.location) if is_file else f"{self.kind.__name__.lower()}:{self.location}"


def input_shown(text: str) -> str:
    """Return the name of an input for display, without credentials."""
    return text if _registered(text) else shown_path(text)


def prediction_input(
    text: str,
    kind: type[Format] | None = None,
    non_finite: NonFinite = "keep",
    invalid: PredictInvalid = "error",
) -> PredictionInput:
    """Return the input `text`; check that it exists, without reading it completely.

    Raises InputError if there is no such file, or its suffix names no format, as for a folder; if ``invalid`` is set
    for a format without invalid cells.
    """
    location, named = text, _registered(text)
    if named is not None and kind in (None, named):
        kind, location = named, text.partition(":")[2]
    if kind is None:
        name = text.partition("?")[0].lower()
        kind = next((known for known in FORMATS.values() if name.endswith(known.suffixes)), None)
    if kind is None:
        known = ", ".join(suffix for format_ in FORMATS.values() for suffix in format_.suffixes)
        raise InputError((f"{shown_path(text)}: expected a file that ends in {known}; or set format=NAME",))
    if invalid == "missing" and not issubclass(kind, TabularFiles):
        why = "cannot have cells of another type than their column"
        raise InputError((f"invalid is missing, but {shown_path(text)} {why}: it is for tabular files; leave it out",))
    if kind.reads_a_file():
        location = location if "://" in location else os.path.abspath(location)  # also for workers
        if issubclass(kind, TabularFiles):
            list_files(location, kind.suffixes)
        else:
            check_file(location)
    return PredictionInput(kind, location, non_finite, invalid)


def open_rows(
    source: PredictionInput,
    schema: InputSchema,
    on_progress: Callable[[int, int], object] = lambda done_bytes, num_bytes: None,
    files: Sequence[DataFile] | None = None,
) -> PredictionRows:
    """Return the rows of an input, checked against the model; tabular files are counted, arrays are read.

    Raises InputError if it is unreadable, lacks a column or array, or has arrays of another shape, dtype or scaling; or
    for a cell of an array that ``non_finite`` or ``invalid`` refuses.
    """
    data = source.kind.for_prediction(source.location, schema.table_columns, schema.names).read()
    if isinstance(data, RecordInput):
        if files is not None:
            data = replace(data, paths=[file.url for file in files])
        if schema.preprocessing is not None:
            return RecordRows.counted(data, schema, source.invalid, on_progress)
        data = whole_dataset(replace(data, invalid=source.invalid), schema, "the predict input", needs_labels=False)
    elif schema.preprocessing is not None:
        raise InputError((f"{source} has arrays: expected columns by name, as in CSV or Parquet, as in training",))
    dataset = dataset_with_policy(data, source.non_finite, str(source))
    unused: list[str] = []
    read = Enforcement(schema.unscaled(), str(source), needs_labels=False, on_unused=unused.extend).dataset(dataset)
    return ArrayRows(read, tuple(unused))


def _registered(text: str) -> type[Format] | None:
    return FORMATS.get(text.partition(":")[0]) if ":" in text else None
