"""The feature columns of a batch, as linear models and deep networks read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, assert_never

import numpy as np

from psflow.ps_runtime.feature_columns.kinds import (
    BucketizedColumn,
    CategoricalColumn,
    Combiner,
    CrossedColumn,
    DenseColumn,
    EmbeddingColumn,
    HashBucketColumn,
    IdentityColumn,
    IndicatorColumn,
    LinearColumn,
    NumericColumn,
    SharedEmbeddingColumn,
    VocabularyColumn,
    WeightedColumn,
    ids_column,
)
from psflow.ps_runtime.feature_columns.transforming import IdValues, Transformation
from psflow.ps_runtime.initializers import normal, truncated_normal
from psflow.ps_runtime.losses import FloatArray
from psflow.ps_runtime.model.canned.column_meaning import column_specs
from psflow.ps_runtime.model.canned.features import MAX_DENSE_IDS, Ids, joining_factors
from psflow.ps_runtime.model.canned.id_rows import IdRows
from psflow.ps_runtime.model.scope import read_columns

__all__ = ["Embedded", "deep_input", "deep_inputs", "linear_inputs", "vectors_name"]


class Embedded(NamedTuple):
    """Ids whose vectors a deep network reads."""

    rows: IdRows
    ids: Ids


def linear_inputs(
    transformation: Transformation, columns: Sequence[LinearColumn], combiner: Combiner, layer: str
) -> dict[str, FloatArray | Ids]:
    """Return what a linear model reads, by the names of the columns, sorted.

    Raises
    ------
    InputError
        If a feature is not there, or not what its column expects.
    ModelFnError
        If this call of model_fn has a layer of the name already.
    """
    read_columns(layer, lambda: column_specs(layer, columns))
    found: dict[str, FloatArray | Ids] = {}
    for column in sorted(columns, key=lambda column: column.name):
        match column:
            case NumericColumn() | IndicatorColumn():
                found[column.name] = transformation.numbers(column)
            case (
                BucketizedColumn()
                | VocabularyColumn()
                | IdentityColumn()
                | HashBucketColumn()
                | WeightedColumn()
                | CrossedColumn()
            ):
                found[column.name] = _joined(transformation.ids(column), column, combiner)
            case _:
                assert_never(column)
    return found


def deep_inputs(
    transformation: Transformation, columns: Sequence[DenseColumn], layer: str
) -> dict[str, FloatArray | Embedded]:
    """Return what a deep network reads, by the names of the columns, sorted.

    Raises
    ------
    InputError
        If a feature is not there, or not what its column expects.
    ModelFnError
        If this call of model_fn has a layer of the name already.
    """
    read_columns(layer, lambda: column_specs(layer, columns))
    in_order = sorted(columns, key=lambda column: column.name)
    return {column.name: deep_input(transformation, column, layer) for column in in_order}


def deep_input(transformation: Transformation, column: DenseColumn, layer: str) -> FloatArray | Embedded:
    """Return one column as a deep network reads it; see `deep_inputs`."""
    match column:
        case NumericColumn() | BucketizedColumn() | IndicatorColumn():
            return transformation.numbers(column)
        case EmbeddingColumn() | SharedEmbeddingColumn():
            of_ids = ids_column(column)
            ids = _joined(transformation.ids(of_ids), of_ids, column.combiner)
            return Embedded(_vectors(column, layer), ids)
        case _:
            assert_never(column)


def vectors_name(layer: str, collection: str) -> str:
    """Return the name of the variable or table of vectors."""
    return f"{layer}/{collection}/embedding_weights"


def _vectors(column: EmbeddingColumn | SharedEmbeddingColumn, layer: str) -> IdRows:
    num_ids, stddev = column.categorical_column.num_buckets, column.dimension**-0.5
    first = truncated_normal(stddev=stddev) if num_ids <= MAX_DENSE_IDS else normal(stddev=stddev)
    name = vectors_name(layer, column.collection_name)
    initializer = column.initializer or first
    return IdRows(name, num_ids, column.dimension, initializer, column.trainable, column.max_norm)


def _joined(found: IdValues, column: CategoricalColumn, combiner: Combiner) -> Ids:
    """Return ids with the factors by which a combiner joins their rows."""
    counts = found.present & (found.ids >= 0)
    if found.weights is None and found.ids.shape[1] == 1 and counts.all():
        return Ids(found.ids[:, 0], column.num_buckets, 0)
    ids, factors = joining_factors(np.where(counts, found.ids, -1), found.weights, combiner)
    return Ids(ids, column.num_buckets, 0, factors=factors)
