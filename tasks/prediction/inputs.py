"""The input of a prediction, in the form that its model reads."""

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
from psflow.tasks.prediction.rows import Rows


@dataclass(frozen=True, slots=True)
class PredictionInput:
    """The input of a prediction, and how it is read."""

    kind: type[Format]
    location: str
    non_finite: NonFinite = "keep"
    invalid: PredictInvalid = "error"

    def __str__(self) -> str:
        """Return how people may read it: without credentials."""
        is_file = self.kind.reads_a_file()
        return shown_path(self.location) if is_file else f"{self.kind.__name__.lower()}:{self.location}"


def input_shown(text: str) -> str:
    """Return what names an input as people may read it: without credentials."""
    return text if _registered(text) else shown_path(text)


def prediction_input(
    text: str,
    kind: type[Format] | None = None,
    non_finite: NonFinite = "keep",
    invalid: PredictInvalid = "error",
) -> PredictionInput:
    """Return the input that `text` names; look whether it is there, but do not read all of it.

    Raises
    ------
    InputError
        If there is no such file, or its suffix is that of no format; a folder has none; if invalid cells become blank
        in a format that has none.
    """
    location, named = text, _registered(text)
    if named is not None and kind in (None, named):
        kind, location = named, text.partition(":")[2]
    if kind is None:
        name = text.partition("?")[0].lower()
        kind = next((known for known in FORMATS.values() if name.endswith(known.suffixes)), None)
    if kind is None:
        known = ", ".join(suffix for format_ in FORMATS.values() for suffix in format_.suffixes)
        raise InputError((f"{shown_path(text)}: expected a file that ends in {known}; or say which format it has",))
    if invalid == "missing" and not issubclass(kind, TabularFiles):
        why = "has no cells that are of another type than their column"
        raise InputError((f"invalid is missing, but {shown_path(text)} {why}: it is for tabular files; leave it out",))
    if kind.reads_a_file():
        location = location if "://" in location else os.path.abspath(location)  # of workers, too
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
) -> Rows:
    """Return the rows of an input, held against what a model reads; tabular files are counted, arrays are read.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column or array, or has arrays of another shape, dtype or scaling; or for a cell
        of an array that ``non_finite`` or ``invalid`` refuses.
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
