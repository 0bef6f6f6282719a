"""Checks the feature columns that a model is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, get_args

from psflow.ps_runtime.feature_columns.kinds import (
    DenseColumn,
    EmbeddingColumn,
    FeatureColumn,
    Initializer,
    LinearColumn,
    SequenceCategoricalColumn,
    SequenceDenseColumn,
    SharedEmbeddingColumn,
    is_sequence,
)


def as_list(columns: Any) -> Any:
    """Return the columns of a model as a list, a single one too; anything but a collection unchanged."""
    if isinstance(columns, get_args(FeatureColumn)):
        return [columns]
    return columns if isinstance(columns, str | dict) or not isinstance(columns, Iterable) else list(columns)


def has_columns(given: Any) -> bool:
    """Return whether feature columns are given, rather than names of features or None; a model does not mix them."""
    return isinstance(given, list) and any(isinstance(item, get_args(FeatureColumn)) for item in given)


def linear_columns_faults(columns: Any, name: str = "feature_columns") -> list[str]:
    """Return the faults of the columns of a linear model, which takes no embeddings, and each name once."""
    faults = _faults(columns, name) or list(_sequence_faults(columns, name))
    if not faults:
        return [
            f"{name} has {column.name!r}, whose vectors a linear model does not learn; use "
            f"{column.categorical_column.name!r}, its categorical column"
            for column in columns
            if not isinstance(column, get_args(LinearColumn))
        ]
    return faults


def deep_columns_faults(columns: Any, name: str = "feature_columns") -> list[str]:
    """Return the faults of the columns of a deep network, which takes dense columns, and each name once."""
    faults = _faults(columns, name) or list(_sequence_faults(columns, name))
    if not faults:
        faults = [
            f"{name} has {column.name!r}, a categorical column; wrap it in embedding_column or indicator_column"
            for column in columns
            if not isinstance(column, get_args(DenseColumn))
        ]
    return faults or list(_sharing_faults(columns, name))


def sequence_columns_faults(columns: Any, name: str = "feature_columns") -> list[str]:
    """Return the faults of the columns of a sequence layer: dense sequence columns, each name once."""
    faults = _faults(columns, name)
    if not faults:
        faults = [
            f"{name} has {column.name!r}, which is not a sequence column; use sequence_numeric_column, or for ids "
            "sequence_categorical_column_with_vocabulary_list or the like"
            if not is_sequence(column)
            else f"{name} has {column.name!r}, a categorical column; wrap it in embedding_column or indicator_column"
            for column in columns
            if not is_sequence(column) or isinstance(column, SequenceCategoricalColumn)
        ]
    return faults or list(_sharing_faults(columns, name))


def _sequence_faults(columns: Iterable[FeatureColumn], name: str) -> Iterator[str]:
    for column in columns:
        if is_sequence(column):
            yield f"{name} has {column.name!r}, a sequence column, which sequence_input_layer of a model_fn reads"


def _faults(columns: Any, name: str) -> list[str]:
    if not isinstance(columns, list) or not columns:
        return [f"{name} is {columns!r}, expected a list of feature columns"]
    kinds = get_args(FeatureColumn)
    if unknown := [column for column in columns if not isinstance(column, kinds)]:
        return [f"{name} has {unknown!r}, expected feature columns" for unknown in unknown]
    counts = Counter(column.name for column in columns)
    return [
        f"{name} has {count} columns named {column!r}, expected one; give the feature another name in input_fn"
        for column, count in counts.items()
        if count > 1
    ]


def _sharing_faults(columns: Iterable[DenseColumn | SequenceDenseColumn], name: str) -> Iterator[str]:
    """Yield the faults of columns that share the name of their vectors."""
    of_vectors: dict[str, Any] = {}
    for column in columns:
        if isinstance(column, EmbeddingColumn | SharedEmbeddingColumn):
            facts = {
                "ids": column.categorical_column.num_buckets,
                "dimension": column.dimension,
                "max_norm": column.max_norm,
                "trainable": column.trainable,
                "initializer": column.initializer and _identity_of(column.initializer),
            }
            known = of_vectors.setdefault(column.collection_name, facts)
            if differ := [fact for fact in facts if known[fact] != facts[fact]]:
                yield (
                    f"{name} has {column.name!r}, whose vectors {column.collection_name!r} another column uses with "
                    f"other {' and '.join(differ)}; make them equal, or use another name"
                )


def _identity_of(initializer: Initializer) -> object:
    """Return a key that is equal for equal initializers."""
    if isinstance(initializer, partial):
        return initializer.func, repr(initializer.args), repr(sorted(initializer.keywords.items()))
    return initializer
