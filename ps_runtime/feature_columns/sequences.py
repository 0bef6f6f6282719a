"""Functions for sequence columns, with the names, arguments and defaults of ``tf.feature_column``.

A sequence feature is an array ``(batch, length)``, or ``(batch, length, n)`` of several values for each step. Missing
values, ``""``, -1 or NaN, pad the rows of shorter sequences. `sequence_input_layer` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ArgumentTypeError
from psflow.ps_runtime.feature_columns.categorical import (
    categorical_column_with_hash_bucket,
    categorical_column_with_identity,
    categorical_column_with_vocabulary_file,
    categorical_column_with_vocabulary_list,
)
from psflow.ps_runtime.feature_columns.dense import numeric_column
from psflow.ps_runtime.feature_columns.kinds import SequenceCategoricalColumn, SequenceNumericColumn


def sequence_categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> SequenceCategoricalColumn:
    """Use the integers of each step as ids; see `categorical_column_with_identity`."""
    return SequenceCategoricalColumn(categorical_column_with_identity(key, num_buckets, default_value))


def sequence_categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = str
) -> SequenceCategoricalColumn:
    """Map the strings or integers of each step to ids by a hash; see `categorical_column_with_hash_bucket`."""
    return SequenceCategoricalColumn(categorical_column_with_hash_bucket(key, hash_bucket_size, dtype))


def sequence_categorical_column_with_vocabulary_list(
    key: str,
    vocabulary_list: Sequence[str] | Sequence[int],
    dtype: Any = None,
    default_value: int = -1,
    num_oov_buckets: int = 0,
) -> SequenceCategoricalColumn:
    """Map the strings or integers of each step to ids; see `categorical_column_with_vocabulary_list`."""
    column = categorical_column_with_vocabulary_list(key, vocabulary_list, dtype, default_value, num_oov_buckets)
    return SequenceCategoricalColumn(column)


def sequence_categorical_column_with_vocabulary_file(
    key: str,
    vocabulary_file: str,
    vocabulary_size: int | None = None,
    num_oov_buckets: int = 0,
    default_value: int | None = None,
    dtype: Any = str,
) -> SequenceCategoricalColumn:
    """Map the strings or integers of each step to ids; see `categorical_column_with_vocabulary_file`. Blocks."""
    column = categorical_column_with_vocabulary_file(
        key, vocabulary_file, vocabulary_size, dtype, default_value, num_oov_buckets
    )
    return SequenceCategoricalColumn(column)


def sequence_numeric_column(
    key: str,
    shape: int | Sequence[int] = (1,),
    default_value: float = 0.0,
    dtype: Any = np.float32,
    normalizer_fn: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> SequenceNumericColumn:
    """Read the numbers of each step, which a model receives as float32.

    Parameters
    ----------
    key : str
        Name of the feature, ``(batch, length, *shape)``, or ``(batch, length * size of the shape)``. NaN is missing.
    shape : int or sequence of int
        Shape of the numbers of one step.
    default_value : float
        Replacement of missing values, after `normalizer_fn`.
    dtype : dtype
        A float or an integer dtype.
    normalizer_fn : callable, optional
        Receives the numbers of all steps of a batch, ``(batch * length, *shape)``, and returns as many. NaN becomes
        `default_value` afterwards.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid.
    """
    checked = numeric_column(key, shape, None, dtype, normalizer_fn)
    is_number = isinstance(default_value, int | float | np.number) and not isinstance(default_value, bool)
    if not is_number or not math.isfinite(default_value):
        raise ArgumentTypeError((f"default_value of column {key!r} is {default_value!r}, expected a finite number",))
    return SequenceNumericColumn(key, checked.shape, float(default_value), checked.dtype, normalizer_fn)
