"""The input of a prediction, in the form that its model reads."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.csv_table import read_csv
from psflow.ps_runtime.data.dataset import MATRIX, Dataset
from psflow.ps_runtime.data.digits import read_digits
from psflow.ps_runtime.data.files import check_file, shown_path
from psflow.ps_runtime.data.npz_arrays import read_npz
from psflow.ps_runtime.errors import InputError
from psflow.tasks.prediction.model import ModelInfo

__all__ = ["check_input", "input_shown", "read_input", "rows_of", "same_input"]

DIGITS = "digits:"


def input_shown(path: str) -> str:
    """Return the name of an input as people may read it: without credentials."""
    return path if path.startswith(DIGITS) else shown_path(path)


def check_input(path: str) -> None:
    """Raise InputError if the input of a prediction is not there; do not read all of it."""
    if not path.startswith(DIGITS):
        check_file(path)


def read_input(path: str, model: ModelInfo) -> Dataset:
    """Read what `model` needs of a file; other columns or arrays are left alone.

    Parameters
    ----------
    path : str
        A CSV, TSV or npz file, or an fsspec URL of one; or ``digits:test``, a part of the digits by name.
    model : ModelInfo
        Names the columns or arrays to read.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column or array, or has arrays of another shape.
    """
    names = [feature.name for feature in model.features if feature.name]
    if path.startswith(DIGITS):
        dataset = read_digits(path.removeprefix(DIGITS))
    elif path.endswith(".npz"):
        dataset = read_npz(path, label=None, features=names or None)
    elif model.columns:
        dataset = read_csv(path, features=model.columns)
    elif names and all(feature.shape == () for feature in model.features):
        table = read_csv(path, features=names)
        dataset = Dataset({name: _matrix(table)[:, index] for index, name in enumerate(names)})
    else:
        dataset = Dataset({names[0] if names else MATRIX: _matrix(read_csv(path))})
    _check_shapes(input_shown(path), dataset, model)
    return dataset


def rows_of(dataset: Dataset, start: int, stop: int, model: ModelInfo) -> Any:
    """Return rows ``[start, stop)`` as the model takes them: a mapping of arrays, or one array."""
    features, _ = dataset.read(0, start, stop)
    arrays = _named(features)
    if [feature.name for feature in model.features] == [""]:
        return next(iter(arrays.values()))
    return arrays


@functools.lru_cache(maxsize=1)
def same_input(path: str, model: ModelInfo, digest: str) -> Dataset:
    """Read the input in a worker, once for all partitions that it predicts.

    Raises
    ------
    InputError
        As `read_input` does; and if the content is not that of `digest`, which another process has seen.
    """
    dataset = read_input(path, model)
    if dataset.digest() != digest:
        raise InputError((f"{input_shown(path)} has changed, or differs on this Dask worker; run the command again",))
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


def _matrix(table: Dataset) -> NDArray[Any]:
    return _named(table.features)[MATRIX]
