"""The input of a prediction, in the form that its model reads."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.dataset import MATRIX, Dataset
from psflow.ps_runtime.data.files import check_file, shown_path
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.non_finite_policy import dataset_with_policy
from psflow.ps_runtime.errors import InputError
from psflow.tasks.prediction.model import ModelInfo

__all__ = ["PredictionInput", "input_shown", "prediction_input", "read_input", "rows_of", "same_input"]


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
        A file or an fsspec URL of one; or ``digits:test``, the name of a format and its location.
    kind : type of Format, optional
        Its format; else the one that it names, or that has its suffix.
    non_finite : {"error", "keep"}
        What becomes of rows with a blank, NaN or infinite cell.

    Raises
    ------
    InputError
        If there is no such file, or its suffix is that of no format.
    """
    location = text
    if kind is None and (kind := _registered(text)) is not None:
        location = text.partition(":")[2]
    if kind is None:
        suffix = os.path.splitext(text.partition("?")[0])[1]
        kind = next((known for known in FORMATS.values() if suffix in known.suffixes), None)
    if kind is None:
        known = ", ".join(suffix for format_ in FORMATS.values() for suffix in format_.suffixes)
        raise InputError((f"{shown_path(text)}: expected a file that ends in {known}; or say which format it has",))
    if kind.reads_a_file():
        location = location if "://" in location else os.path.abspath(location)  # of workers, too
        check_file(location)
    return PredictionInput(kind, location, non_finite)


def read_input(source: PredictionInput, model: ModelInfo) -> Dataset:
    """Read what `model` needs of an input, and look for cells that are not finite; the rest of it is left alone.

    Parameters
    ----------
    source : PredictionInput
        What to read.
    model : ModelInfo
        Names the columns or arrays to read.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column or array, or has arrays of another shape; or for a cell that
        ``non_finite`` refuses.
    """
    names = tuple(feature.name for feature in model.features if feature.name)
    is_flat = bool(names) and all(feature.shape == () for feature in model.features)
    columns = model.columns or (names if is_flat else ())
    dataset = source.kind.for_prediction(source.location, columns, names).read()
    dataset = dataset_with_policy(dataset, source.non_finite, str(source))
    if dataset.columns and source.kind.reads_a_file():  # what is built in has names of its own
        _check_columns(source, dataset, columns)
        matrix = _named(dataset.features)[MATRIX]
        if is_flat and not model.columns:
            features = {name: matrix[:, index] for index, name in enumerate(names)}
            dataset = Dataset(features, non_finite=dataset.non_finite)
        elif not model.columns:
            dataset = Dataset({names[0] if names else MATRIX: matrix}, non_finite=dataset.non_finite)
    _check_shapes(str(source), dataset, model)
    return dataset


def _registered(text: str) -> type[Format] | None:
    return FORMATS.get(text.partition(":")[0]) if ":" in text else None


def _check_columns(source: PredictionInput, dataset: Dataset, columns: Sequence[str]) -> None:
    """Refuse a table that has other columns than the model reads, or has them in another order."""
    if columns and dataset.columns != tuple(columns):
        raise InputError(
            (
                f"{source}: expected the columns {', '.join(columns[:5])}{', ...' if len(columns) > 5 else ''}, "
                f"got {', '.join(dataset.columns[:5])}{', ...' if len(dataset.columns) > 5 else ''}",
            )
        )


def rows_of(dataset: Dataset, start: int, stop: int, model: ModelInfo) -> Any:
    """Return rows ``[start, stop)`` as the model takes them: a mapping of arrays, or one array."""
    features, _ = dataset.read(0, start, stop)
    arrays = _named(features)
    if [feature.name for feature in model.features] == [""]:
        return next(iter(arrays.values()))
    return arrays


@functools.lru_cache(maxsize=1)
def same_input(source: PredictionInput, model: ModelInfo, digest: str) -> Dataset:
    """Read the input in a worker, once for all partitions that it predicts.

    Raises
    ------
    InputError
        As `read_input` does; and if the content is not that of `digest`, which another process has seen.
    """
    dataset = read_input(source, model)
    if dataset.digest() != digest:
        raise InputError((f"{source} has changed, or differs on this Dask worker; run the command again",))
    return dataset


def _check_shapes(path: str, dataset: Dataset, model: ModelInfo) -> None:
    arrays = _named(dataset.features)
    if [feature.name for feature in model.features] == [""]:
        if len(arrays) != 1:
            raise InputError((f"{path} has {len(arrays)} arrays, expected one: the model reads a single one",))
        arrays = {"": next(iter(arrays.values()))}
    faults = [
        f"{path}: feature {feature.name!r} is missing"
        if feature.name not in arrays
        else f"{path}: feature {feature.name!r} has rows of shape {list(arrays[feature.name].shape[1:])}, "
        f"expected {list(feature.shape)}"
        for feature in model.features
        if feature.name not in arrays or arrays[feature.name].shape[1:] != feature.shape
    ]
    if faults:
        raise InputError(tuple(faults))


def _named(features: Any) -> dict[str, NDArray[Any]]:
    return dict(features) if isinstance(features, Mapping) else {MATRIX: np.asarray(features)}
