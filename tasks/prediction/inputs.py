"""The input of a prediction, in the form that its model reads."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.files import check_file
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.non_finite_policy import dataset_with_policy
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.record_formats import RecordFiles
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.data.whole_files import whole_dataset
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.record_files.listing import list_files
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = [
    "PredictionInput",
    "input_shown",
    "key_columns",
    "prediction_input",
    "read_input",
    "rows_for_model",
    "same_input",
]


@dataclass(frozen=True, slots=True)
class PredictionInput:
    """The input of a prediction, and how it is read.

    Parameters
    ----------
    kind : type of Format
        How the location is read.
    location : str
        A path or URL, or another location that the format understands.
    non_finite : {"error", "keep"}
        What becomes of rows with a blank, NaN or infinite cell.
    """

    kind: type[Format]
    location: str
    non_finite: NonFinite = "keep"

    def __str__(self) -> str:
        """Return how people may read it: without credentials."""
        is_file = self.kind.reads_a_file()
        return shown_path(self.location) if is_file else f"{self.kind.__name__.lower()}:{self.location}"


def input_shown(text: str) -> str:
    """Return what names an input as people may read it: without credentials."""
    return text if _registered(text) else shown_path(text)


def prediction_input(text: str, kind: type[Format] | None = None, non_finite: NonFinite = "keep") -> PredictionInput:
    """Return the input that `text` names; look whether it is there, but do not read all of it.

    Parameters
    ----------
    text : str
        A file, of records also a folder or a glob; an fsspec URL of one; or ``digits:test``, the name of a format and
        its location.
    kind : type of Format, optional
        Its format; else the one that it names, or that has its suffix.
    non_finite : {"error", "keep"}
        What becomes of rows with a blank, NaN or infinite cell.

    Raises
    ------
    InputError
        If there is no such file, or its suffix is that of no format; a folder has none.
    """
    location, named = text, _registered(text)
    if named is not None and kind in (None, named):
        kind, location = named, text.partition(":")[2]
    if kind is None:
        name = text.partition("?")[0]
        kind = next((known for known in FORMATS.values() if name.endswith(known.suffixes)), None)
    if kind is None:
        known = ", ".join(suffix for format_ in FORMATS.values() for suffix in format_.suffixes)
        raise InputError((f"{shown_path(text)}: expected a file that ends in {known}; or say which format it has",))
    if kind.reads_a_file():
        location = location if "://" in location else os.path.abspath(location)  # of workers, too
        if issubclass(kind, RecordFiles):
            list_files(location, kind.suffixes)
        else:
            check_file(location)
    return PredictionInput(kind, location, non_finite)


def read_input(
    source: PredictionInput, schema: InputSchema, on_unused: Callable[[tuple[str, ...]], None] = lambda names: None
) -> SplittableInput:
    """Read what a model needs of an input, as it is stored (the model itself scales it), and look for cells not finite.

    Parameters
    ----------
    source : PredictionInput
        What to read.
    schema : InputSchema
        Of the training input of the model; names the columns or arrays to read.
    on_unused : callable
        Told what else the input has, which is ignored.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column or array, or has arrays of another shape, dtype or scaling; or for a cell
        that ``non_finite`` refuses.
    """
    data = source.kind.for_prediction(source.location, schema.table_columns, schema.names).read()
    if isinstance(data, RecordInput):
        if schema.preprocessing is not None:
            return _preprocessed(source, data, schema, on_unused)
        data = whole_dataset(data, schema, needs_labels=False)
    elif schema.preprocessing is not None:
        raise InputError((f"{source} has arrays: expected columns by name, as in CSV or Parquet, as in training",))
    dataset = dataset_with_policy(data, source.non_finite, str(source))
    return Enforcement(schema.unscaled(), str(source), needs_labels=False, on_unused=on_unused).dataset(dataset)


def _preprocessed(
    source: PredictionInput, data: RecordInput, schema: InputSchema, on_unused: Callable[[tuple[str, ...]], None]
) -> RecordDataset:
    opened = data.open(schema, source.non_finite, str(source), needs_labels=False)
    if unused := tuple(name for name in opened.unused if name != schema.label):
        on_unused(unused)
    return opened


def rows_for_model(data: SplittableInput, schema: InputSchema, start: int, stop: int) -> Any:
    """Return rows ``[start, stop)`` as the exported model takes them: raw columns if it preprocesses them itself."""
    if isinstance(data, RecordDataset) and schema.preprocessing is not None:
        return data.raw(start, stop)
    return data.read(0, start, stop)[0]


def key_columns(data: SplittableInput, schema: InputSchema, start: int, stop: int) -> Mapping[str, Any]:
    """Return the key columns of rows ``[start, stop)`` by name: those that the training named and the input has."""
    if not isinstance(data, RecordDataset):
        return {}
    table = data.keys(start, stop)
    return {name: table.column(name) for name in table.column_names}


def _registered(text: str) -> type[Format] | None:
    return FORMATS.get(text.partition(":")[0]) if ":" in text else None


@functools.lru_cache(maxsize=1)
def same_input(source: PredictionInput, schema: InputSchema, digest: str) -> SplittableInput:
    """Read the input in a worker, once for all partitions that it predicts.

    Raises
    ------
    InputError
        As `read_input` does; and if the content is not that of `digest`, which another process has seen.
    """
    dataset = read_input(source, schema)
    if dataset.digest() != digest:
        raise InputError((f"{source} has changed, or differs on this Dask worker; run the command again",))
    return dataset
