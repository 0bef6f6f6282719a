"""Checks the batches of an input and converts them to plain arrays."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from psflow.ps_runtime.data.arrays import Columns, plain_arrays
from psflow.ps_runtime.data.torch_values import is_pair, is_tensor
from psflow.ps_runtime.errors import InputError, LabelError

Batch = tuple[Columns, Columns | None]


def check_batch(features: object, labels: object, where: str) -> Batch:
    """Return a batch as C-contiguous, native-endian arrays of equal length.

    Raises
    ------
    InputError
        Lists all faults: not an array, an object dtype, no rows, different lengths.
    """
    try:
        return plain_arrays(features, labels)
    except InputError as error:
        raise InputError(tuple(f"{where}: {fault}" for fault in error.faults)) from None


def checked_batch(given: Any, where: str) -> Batch:
    """Return `check_batch` of a tuple (features, labels), or of features alone; InputError for anything else."""
    if is_features(given):
        return check_batch(given, None, where)
    if (isinstance(given, tuple) and len(given) == 2) or is_pair(given):
        features, labels = given
        return check_batch(features, labels, where)
    raise InputError((f"{where}: expected a tuple (features, labels), got {kind_of(given)}",))


def is_features(value: object) -> bool:
    """Whether `value` is features without labels."""
    return isinstance(value, Mapping | np.ndarray) or is_tensor(value)


def kind_of(value: object) -> str:
    """Return the description of an unexpected value for error messages."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)} ({', '.join(type(v).__name__ for v in value[:4])})"
    return f"{type(value).__name__} ({value.__name__})" if inspect.isroutine(value) else type(value).__name__


@contextmanager
def batch_named(where: str) -> Iterator[None]:
    """Add the name of the batch to a label error of the block."""
    try:
        yield
    except LabelError as error:
        raise named(error, where) from error.__cause__


def named(error: LabelError, where: str) -> LabelError:
    """Return a label error with the name of its batch."""
    return LabelError(error.row, where, error.reason)
