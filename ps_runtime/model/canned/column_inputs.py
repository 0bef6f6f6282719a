"""Reads the feature columns of a batch for linear models and deep networks.

Few ids have a variable of rows, which travels whole with each step. Many have a sparse table (`Ids.is_table`): then
only the rows of a batch travel, and their lifetime is set by the schema.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.row_lifetime import UNLIMITED, RowLifetime
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.feature_columns.kinds import (
    BucketizedColumn,
    CategoricalColumn,
    Combiner,
    CrossedColumn,
    DenseColumn,
    EmbeddingColumn,
    FeatureColumn,
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
from psflow.ps_runtime.initializers import Initializer, normal, of_table, truncated_normal
from psflow.ps_runtime.losses import FloatArray
from psflow.ps_runtime.model.calls.gradients import gradient_buffer
from psflow.ps_runtime.model.calls.scope import get_variable, read_columns
from psflow.ps_runtime.model.canned.features import MAX_DENSE_IDS, Ids, joining_factors
from psflow.ps_runtime.model.embedding import embedding_lookup
from psflow.ps_runtime.model.lookups import SparseGradient
from psflow.ps_runtime.numeric import numpy_of, plain
from psflow.ps_runtime.specs.input import ColumnSpec

HOW_IT_IS_LEARNED = frozenset({"initializer", "combiner", "trainable"})
MAX_SHOWN = 200
"""Length limit of a value; longer ones are represented by a digest."""


def column_specs(layer: str, columns: Iterable[FeatureColumn]) -> tuple[ColumnSpec, ...]:
    """Return the descriptions of the columns of a layer, in the sorted order of their names.

    A normalizer_fn is recorded only as present: functions cannot be compared.
    """
    return tuple(
        ColumnSpec(layer, column.name, tuple(sorted(_facts(column, ""))))
        for column in sorted(columns, key=lambda column: column.name)
    )


def _facts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if is_dataclass(value):
        yield f"{where}kind", type(value).__name__
        for field in fields(value):
            if field.name not in HOW_IT_IS_LEARNED:
                yield from _facts(getattr(value, field.name), f"{where}{field.name}.")
    elif isinstance(value, tuple) and any(map(is_dataclass, value)):
        for place, item in enumerate(value):
            yield from _facts(item, f"{where}{place}.")
    else:
        yield where.rstrip("."), "a function" if callable(value) else _shown(value)


def _shown(value: Any) -> str:
    text = repr(value)
    if len(text) <= MAX_SHOWN:
        return text
    of_all = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    length = f"{len(value)} values" if isinstance(value, tuple) else f"{len(text)} characters"
    return f"{length} of the digest {of_all}"


@dataclass(frozen=True, slots=True)
class IdRows:
    """The rows of the ids of one feature, or of several features that share them."""

    name: str
    num_ids: int
    dim: int
    initializer: Initializer = field(compare=False)
    trainable: bool = True
    max_norm: float | None = None
    lifetime: RowLifetime = UNLIMITED

    def look_up(self, ids: Ids) -> Any:
        """Return the row of each example's id, or the weighted sum of its rows."""
        if ids.factors is None and self.max_norm is None:
            return self._rows(ids.values)
        values, factors = _with_axis(ids)
        present = values >= 0
        rows = self._shortened(self._rows(values[present]))
        places = np.full(values.shape, int(present.sum()))
        places[present] = np.arange(len(rows))
        np_ = numpy_of(rows)
        padded = np_.concatenate([rows, np.zeros((1, self.dim), np.float32)])  # absent ids take the last row
        return np_.sum(padded[places] * factors[:, :, np.newaxis], axis=1)

    def gradient(self, parts: Sequence[tuple[Ids, FloatArray]]) -> FloatArray | SparseGradient:
        """Return the gradient of the variable or table: that of an id is summed over its lookups."""
        each = [self._of_each_id(ids, gradient) for ids, gradient in parts]
        if self.num_ids > MAX_DENSE_IDS:
            summed = [SparseGradient(ids, gradients) for ids, gradients in each]
            return sum(summed[1:], start=summed[0])
        places = np.concatenate(
            [ids.astype(np.intp)[:, np.newaxis] * self.dim + np.arange(self.dim) for ids, _ in each]
        )
        gradients = np.concatenate([gradients for _, gradients in each])
        dense: FloatArray = gradient_buffer(self.name)
        counted = np.bincount(places.ravel(), gradients.ravel(), self.num_ids * self.dim)
        dense[...] = counted.reshape(self.num_ids, self.dim)
        return dense

    def _of_each_id(self, ids: Ids, gradient: FloatArray) -> tuple[NDArray[np.integer[Any]], FloatArray]:
        """Return the ids that are present, and the gradient of the row of each."""
        if ids.factors is None and self.max_norm is None:
            return ids.values, gradient
        values, factors = _with_axis(ids)
        present = values >= 0
        examples, _ = np.nonzero(present)
        of_rows: FloatArray = gradient[examples] * factors[present][:, np.newaxis]
        if self.max_norm is None:
            return values[present], of_rows
        rows = self._rows(values[present])
        norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        # d(m r / |r|) removes the part of the gradient along r
        along = rows * ((rows * of_rows).sum(axis=1, keepdims=True) / np.maximum(norms * norms, self.max_norm**2))
        is_long = norms > self.max_norm
        return values[present], np.where(
            is_long, (of_rows - along) * (self.max_norm / np.maximum(norms, 1e-30)), of_rows
        )

    def _rows(self, ids: NDArray[np.integer[Any]]) -> Any:
        """Return the stored row of each id."""
        if self.num_ids <= MAX_DENSE_IDS:
            shape = (self.num_ids, self.dim)
            return get_variable(self.name, shape, initializer=self.initializer, trainable=self.trainable)[ids]
        known = of_table(self.initializer)
        if known is None:
            raise ModelFnError(
                (
                    f"{self.name!r} has {self.num_ids} rows, which are a sparse table: expected an initializer that is "
                    "normal(stddev=...), uniform(low=-x, high=x), constant(x) or zeros",
                )
            )
        kind, scale = known
        rows = embedding_lookup(
            self.name,
            ids,
            self.num_ids,
            self.dim,
            initializer=kind,
            scale=scale,
            admit_after=self.lifetime.admit_after,
            expire_after_steps=self.lifetime.expire_after_steps,
        )
        return rows if self.trainable else plain(rows)

    def _shortened(self, rows: Any) -> Any:
        if self.max_norm is None:
            return rows
        np_ = numpy_of(rows)
        squares = np_.sum(rows * rows, axis=1, keepdims=True)
        is_long = plain(squares) > self.max_norm**2
        # the root of a replaced value has no infinite gradient
        return rows * np_.where(is_long, self.max_norm / np_.sqrt(np_.where(is_long, squares, 1.0)), 1.0)


def _with_axis(ids: Ids) -> tuple[NDArray[np.integer[Any]], NDArray[np.float32]]:
    """Return ids and factors as ``(batch, n)``."""
    if ids.factors is not None:
        return ids.values, ids.factors
    return ids.values[:, np.newaxis], np.ones((len(ids.values), 1), np.float32)


class Embedded(NamedTuple):
    """Ids whose embedding vectors a deep network reads."""

    rows: IdRows
    ids: Ids


def linear_inputs(
    transformation: Transformation, columns: Sequence[LinearColumn], combiner: Combiner, layer: str
) -> dict[str, FloatArray | Ids]:
    """Return the inputs of a linear model, by column name, sorted.

    Raises
    ------
    InputError
        If a feature is missing, or does not fit its column.
    ModelFnError
        If this call of model_fn already has a layer with this name.
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
    """Return the inputs of a deep network, by column name, sorted.

    Raises
    ------
    InputError
        If a feature is missing, or does not fit its column.
    ModelFnError
        If this call of model_fn already has a layer with this name.
    """
    read_columns(layer, lambda: column_specs(layer, columns))
    in_order = sorted(columns, key=lambda column: column.name)
    return {column.name: deep_input(transformation, column, layer) for column in in_order}


def deep_input(transformation: Transformation, column: DenseColumn, layer: str) -> FloatArray | Embedded:
    """Return one column as input of a deep network; see `deep_inputs`."""
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
    """Return the name of the variable or table of embedding vectors."""
    return f"{layer}/{collection}/embedding_weights"


def _vectors(column: EmbeddingColumn | SharedEmbeddingColumn, layer: str) -> IdRows:
    num_ids, stddev = column.categorical_column.num_buckets, column.dimension**-0.5
    first = truncated_normal(stddev=stddev) if num_ids <= MAX_DENSE_IDS else normal(stddev=stddev)
    name = vectors_name(layer, column.collection_name)
    initializer = column.initializer or first
    return IdRows(name, num_ids, column.dimension, initializer, column.trainable, column.max_norm)


def _joined(found: IdValues, column: CategoricalColumn, combiner: Combiner) -> Ids:
    """Return ids with the factors by which a combiner adds their rows."""
    counts = found.present & (found.ids >= 0)
    if found.weights is None and found.ids.shape[1] == 1 and counts.all():
        return Ids(found.ids[:, 0], column.num_buckets, 0)
    ids, factors = joining_factors(np.where(counts, found.ids, -1), found.weights, combiner)
    return Ids(ids, column.num_buckets, 0, factors=factors)
