"""Functions for dense columns, with the names, arguments and defaults of ``tf.feature_column``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from psflow.ps_runtime.errors import ArgumentTypeError, UsageError
from psflow.ps_runtime.feature_columns.arguments import (
    check_categorical,
    check_combiner,
    check_integer,
    check_key,
    checked_default,
    checked_dtype,
    checked_list,
    checked_shape,
)
from psflow.ps_runtime.feature_columns.kinds import (
    BucketizedColumn,
    CategoricalColumn,
    Combiner,
    EmbeddingColumn,
    IndicatorColumn,
    Initializer,
    NumericColumn,
    SequenceCategoricalColumn,
    SharedEmbeddingColumn,
    WeightedColumn,
)


def numeric_column(
    key: str,
    shape: int | Sequence[int] = (1,),
    default_value: ArrayLike | None = None,
    dtype: Any = np.float32,
    normalizer_fn: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
) -> NumericColumn:
    """Read numbers, which a model receives as float32.

    Parameters
    ----------
    key : str
        Name of the feature.
    shape : int or sequence of int
        Shape of the numbers of one example; ``(1,)`` also fits a feature of shape ``(batch,)``, and ``()`` one of
        shape ``(batch, 1)``.
    default_value : number, or numbers of `shape`, optional
        Replacement of missing numbers, which are NaN.
    dtype : dtype
        A float or an integer dtype.
    normalizer_fn : callable, optional
        Receives the numbers of a batch, ``(batch, *shape)``, and returns as many. For an export it must be at the top
        level of a module.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid.

    Examples
    --------
    >>> numeric_column("area", shape=2).name
    'area'
    """
    check_key(key)
    lengths = checked_shape(shape, key)
    known = checked_dtype(dtype, key, "fiu")
    default = checked_default(default_value, lengths, known, key)
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise ArgumentTypeError((f"normalizer_fn of column {key!r} is {normalizer_fn!r}, expected a function",))
    return NumericColumn(key, lengths, default, known, normalizer_fn)


def bucketized_column(source_column: NumericColumn, boundaries: Sequence[float]) -> BucketizedColumn:
    """Map numbers to the ids of their buckets. A boundary lies in the bucket above it.

    Parameters
    ----------
    source_column : column made by `numeric_column`
        With one axis. Each of its numbers has its own buckets; NaN is an error that names the row.
    boundaries : list or tuple of float
        Finite, ascending.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid.
    """
    if not isinstance(source_column, NumericColumn):
        raise UsageError((f"source_column is {source_column!r}, expected one made by numeric_column",))
    if len(source_column.shape) > 1:
        raise UsageError((f"source_column {source_column.name!r} has the shape {source_column.shape}, expected (k,)",))
    edges = [float(edge) for edge in boundaries if _is_finite(edge)] if isinstance(boundaries, list | tuple) else []
    if not edges or len(edges) < len(boundaries) or any(low >= high for low, high in itertools.pairwise(edges)):
        raise UsageError((f"boundaries are {boundaries!r}, expected a list of finite, ascending numbers",))
    return BucketizedColumn(source_column, tuple(edges))


def indicator_column(categorical_column: CategoricalColumn | SequenceCategoricalColumn) -> IndicatorColumn:
    """Count the occurrences of each id in an example, or sum its weights.

    Raises
    ------
    ArgumentTypeError
        If it is not a categorical column.
    """
    check_categorical(categorical_column, sequences=True)
    return IndicatorColumn(categorical_column)


def embedding_column(
    categorical_column: CategoricalColumn | SequenceCategoricalColumn,
    dimension: int,
    combiner: Combiner = "mean",
    initializer: Initializer | None = None,
    ckpt_to_load_from: None = None,
    tensor_name_in_ckpt: None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> EmbeddingColumn:
    """Look up a learned vector for each id, and combine those of an example.

    Parameters
    ----------
    categorical_column : categorical column
        The column of the ids.
    dimension : int
        Length of a vector.
    combiner : {"mean", "sqrtn", "sum"}
        The weighted sum, divided by the sum of the weights (mean), or by the root of the sum of their squares
        (sqrtn). Except for `sum`, ids with weights that are not above 0 are left out. An example without ids is zero.
    initializer : callable ``(shape, dtype, rng) -> array``, optional
        Initial values, of `psflow.initializers`; default: normal, truncated at two standard deviations of
        ``1 / sqrt(dimension)``.
    ckpt_to_load_from, tensor_name_in_ckpt : None
        Not supported: use `warm_start_from` of the Estimator for initial values from a checkpoint.
    max_norm : float, optional
        Longer vectors are shortened to this length in lookups.
    trainable : bool
        Whether training changes the vectors.
    use_safe_embedding_lookup : bool
        Must be True: every lookup is safe.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid.

    Notes
    -----
    Up to 1,000 vectors are a variable, more of them a sparse table, whose initializer is `normal`, `uniform` around 0,
    a `constant` number, or `zeros`; its default is an untruncated normal.
    """
    check_categorical(categorical_column, sequences=True)
    _check_vectors(dimension, combiner, initializer, max_norm)
    _check_lookup(ckpt_to_load_from, tensor_name_in_ckpt, use_safe_embedding_lookup)
    return EmbeddingColumn(categorical_column, int(dimension), combiner, initializer, max_norm, bool(trainable))


def shared_embeddings(
    categorical_columns: Sequence[CategoricalColumn | SequenceCategoricalColumn],
    dimension: int,
    combiner: Combiner = "mean",
    initializer: Initializer | None = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: None = None,
    tensor_name_in_ckpt: None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> list[SharedEmbeddingColumn]:
    """Make embedding columns that look up the ids of several columns in the same vectors.

    Parameters
    ----------
    categorical_columns : sequence of categorical column
        All of the same kind, weighted or not, and with the same number of ids.
    shared_embedding_collection_name : str, optional
        Name of the vectors; default: made of the names of the columns.
    dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt, max_norm
        See `embedding_column`.
    trainable, use_safe_embedding_lookup
        See `embedding_column`.

    Returns
    -------
    list of column
        In the order of `categorical_columns`.

    Raises
    ------
    UsageError, ArgumentTypeError
        If an argument is invalid.
    """
    _check_vectors(dimension, combiner, initializer, max_norm)
    _check_lookup(ckpt_to_load_from, tensor_name_in_ckpt, use_safe_embedding_lookup)
    given = checked_list("categorical_columns", categorical_columns, 1)
    for column in given:
        check_categorical(column, "one of categorical_columns", sequences=True)
    if shared_embedding_collection_name is not None:
        check_key(shared_embedding_collection_name, "shared_embedding_collection_name")
    in_order = sorted(given, key=lambda column: column.name)
    first = in_order[0]
    for column in in_order[1:]:
        if _kind(column) != _kind(first) or column.num_buckets != first.num_buckets:
            kinds = (f"{c.name!r} is {_kind(c)} of {c.num_buckets} ids" for c in (column, first))
            raise UsageError(
                (f"columns that share vectors must have the same kind and number of ids; {', '.join(kinds)}",)
            )
    shared = shared_embedding_collection_name or "_".join(c.name for c in in_order) + "_shared_embedding"
    return [
        SharedEmbeddingColumn(column, int(dimension), shared, combiner, initializer, max_norm, bool(trainable))
        for column in given
    ]


def _is_finite(edge: Any) -> bool:
    is_number = isinstance(edge, int | float | np.number) and not isinstance(edge, bool)
    return is_number and bool(np.isfinite(edge))


def _kind(column: CategoricalColumn | SequenceCategoricalColumn) -> str:
    """Return the kind of a column's ids, weighted or not."""
    if isinstance(column, WeightedColumn):
        return _kind(column.categorical_column)
    if isinstance(column, SequenceCategoricalColumn):
        return f"a sequence of {_kind(column.categorical_column)}"
    return type(column).__name__


def _check_vectors(dimension: Any, combiner: Any, initializer: Any, max_norm: Any) -> None:
    if dimension is None:
        raise UsageError(("dimension is None, expected an integer >= 1",))
    check_integer("dimension", dimension, 1, 2**31, "an integer >= 1")
    check_combiner(combiner, "an embedding column")
    if initializer is not None and not callable(initializer):
        fault = f"initializer is {initializer!r}, expected a function, such as initializers.normal()"
        raise ArgumentTypeError((fault,))
    if max_norm is None:
        return
    expected = f"max_norm is {max_norm!r}, expected a number above 0"
    if isinstance(max_norm, bool) or not isinstance(max_norm, int | float | np.number):
        raise ArgumentTypeError((expected,))
    if not 0 < max_norm < np.inf:
        raise UsageError((expected,))


def _check_lookup(ckpt_to_load_from: Any, tensor_name_in_ckpt: Any, use_safe_embedding_lookup: Any) -> None:
    if (ckpt_to_load_from, tensor_name_in_ckpt) != (None, None):
        raise UsageError(
            ("ckpt_to_load_from is not supported; use warm_start_from=WarmStartSettings(...) of the Estimator",)
        )
    if use_safe_embedding_lookup is not True:
        raise UsageError((f"use_safe_embedding_lookup is {use_safe_embedding_lookup!r}, expected True",))
