"""The kinds of feature columns, frozen; the functions of `psflow.feature_column` make them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Combiner = Literal["sum", "mean", "sqrtn"]
COMBINERS: tuple[Combiner, ...] = get_args(Combiner)
Initializer = Callable[..., NDArray[Any]]


@dataclass(frozen=True)
class NumericColumn:
    """Numbers, optionally normalized by `normalizer_fn`; see `numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: tuple[float, ...] | None
    dtype: str
    normalizer_fn: Callable[[NDArray[Any]], NDArray[Any]] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        _make_tuples(self, "shape", "default_value")

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.key


@dataclass(frozen=True)
class BucketizedColumn:
    """The bucket of each number; see `bucketized_column`."""

    source_column: NumericColumn
    boundaries: tuple[float, ...]

    def __post_init__(self) -> None:
        _make_tuples(self, "boundaries")

    @property
    def name(self) -> str:
        """Name of the column."""
        return f"{self.source_column.name}_bucketized"

    @property
    def num_buckets(self) -> int:
        """Buckets of each number, times the numbers of an example."""
        return (len(self.boundaries) + 1) * math.prod(self.source_column.shape)


@dataclass(frozen=True)
class VocabularyColumn:
    """Positions of values in a vocabulary; see `categorical_column_with_vocabulary_list`.

    `vocabulary` has integers as their decimal text.
    """

    key: str
    vocabulary: tuple[str, ...] = field(hash=False, repr=False)
    dtype: str
    default_value: int = -1
    num_oov_buckets: int = 0

    def __post_init__(self) -> None:
        _make_tuples(self, "vocabulary")

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.key

    @property
    def num_buckets(self) -> int:
        """Number of ids."""
        return len(self.vocabulary) + self.num_oov_buckets

    @functools.cached_property
    def array(self) -> pa.Array:
        """The vocabulary as pyarrow looks it up."""
        import pyarrow as pa

        return pa.array(self.vocabulary, pa.string())


@dataclass(frozen=True)
class IdentityColumn:
    """Integers that are ids already; see `categorical_column_with_identity`."""

    key: str
    num_buckets: int
    default_value: int | None = None

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.key


@dataclass(frozen=True)
class HashBucketColumn:
    """Hashes of values; see `categorical_column_with_hash_bucket`."""

    key: str
    hash_bucket_size: int
    dtype: str

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.key

    @property
    def num_buckets(self) -> int:
        """Number of ids."""
        return self.hash_bucket_size


@dataclass(frozen=True)
class WeightedColumn:
    """Ids with weights; see `weighted_categorical_column`."""

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: str

    @property
    def name(self) -> str:
        """Name of the column."""
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def num_buckets(self) -> int:
        """Number of ids."""
        return self.categorical_column.num_buckets


@dataclass(frozen=True)
class CrossedColumn:
    """Hashes of the combinations of values; see `crossed_column`."""

    keys: tuple[str | CategoricalColumn, ...]
    hash_bucket_size: int
    hash_key: int | None = None

    def __post_init__(self) -> None:
        _make_tuples(self, "keys")

    @property
    def name(self) -> str:
        """Name of the column."""
        return "_X_".join(sorted(key if isinstance(key, str) else key.name for key in leaves_of(self)))

    @property
    def num_buckets(self) -> int:
        """Number of ids."""
        return self.hash_bucket_size


CategoricalColumn = (
    BucketizedColumn | VocabularyColumn | IdentityColumn | HashBucketColumn | WeightedColumn | CrossedColumn
)
"""Columns of ids: a linear model has a weight for each id, and a deep network needs an embedding."""


@dataclass(frozen=True)
class SequenceCategoricalColumn:
    """Ids of each step of a sequence; see `sequence_categorical_column_with_identity` and the like."""

    categorical_column: VocabularyColumn | IdentityColumn | HashBucketColumn

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.categorical_column.name

    @property
    def num_buckets(self) -> int:
        """Number of ids."""
        return self.categorical_column.num_buckets


@dataclass(frozen=True)
class SequenceNumericColumn:
    """Numbers of each step of a sequence; see `sequence_numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: float
    dtype: str
    normalizer_fn: Callable[[NDArray[Any]], NDArray[Any]] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        _make_tuples(self, "shape")

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.key


@dataclass(frozen=True)
class IndicatorColumn:
    """The number of occurrences of each id; see `indicator_column`."""

    categorical_column: CategoricalColumn | SequenceCategoricalColumn

    @property
    def name(self) -> str:
        """Name of the column."""
        return f"{self.categorical_column.name}_indicator"


@dataclass(frozen=True)
class EmbeddingColumn:
    """A learned vector for each id; see `embedding_column`."""

    categorical_column: CategoricalColumn | SequenceCategoricalColumn
    dimension: int
    combiner: Combiner
    initializer: Initializer | None = field(default=None, hash=False)
    max_norm: float | None = None
    trainable: bool = True

    @property
    def name(self) -> str:
        """Name of the column, and of its vectors."""
        return f"{self.categorical_column.name}_embedding"

    @property
    def collection_name(self) -> str:
        """Name of the vectors."""
        return self.name


@dataclass(frozen=True)
class SharedEmbeddingColumn:
    """A learned vector for each id, shared with other columns; see `shared_embeddings`."""

    categorical_column: CategoricalColumn | SequenceCategoricalColumn
    dimension: int
    collection_name: str
    combiner: Combiner
    initializer: Initializer | None = field(default=None, hash=False)
    max_norm: float | None = None
    trainable: bool = True

    @property
    def name(self) -> str:
        """Name of the column."""
        return f"{self.categorical_column.name}_shared_embedding"


DenseColumn = NumericColumn | BucketizedColumn | IndicatorColumn | EmbeddingColumn | SharedEmbeddingColumn
"""Columns of numbers, which a deep network reads."""

LinearColumn = CategoricalColumn | NumericColumn | IndicatorColumn
"""Columns that a linear model reads."""

SequenceDenseColumn = SequenceNumericColumn | IndicatorColumn | EmbeddingColumn | SharedEmbeddingColumn
"""Columns of numbers for each step of a sequence; the last three have sequential ids."""

FeatureColumn = CategoricalColumn | DenseColumn | SequenceCategoricalColumn | SequenceNumericColumn


def is_sequence(column: FeatureColumn) -> bool:
    """Return whether a column reads sequences, which only `sequence_input_layer` does."""
    if isinstance(column, IndicatorColumn | EmbeddingColumn | SharedEmbeddingColumn):
        return isinstance(column.categorical_column, SequenceCategoricalColumn)
    return isinstance(column, SequenceCategoricalColumn | SequenceNumericColumn)


def ids_column(column: IndicatorColumn | EmbeddingColumn | SharedEmbeddingColumn) -> CategoricalColumn:
    """Return the categorical column of a dense column, for sequences that of each step."""
    of_ids = column.categorical_column
    return of_ids.categorical_column if isinstance(of_ids, SequenceCategoricalColumn) else of_ids


def leaves_of(crossed: CrossedColumn) -> Iterator[str | CategoricalColumn]:
    """Yield the members of a cross, with those of nested crosses."""
    for key in crossed.keys:
        if isinstance(key, CrossedColumn):
            yield from leaves_of(key)
        else:
            yield key


def _make_tuples(column: object, *names: str) -> None:
    """Convert lists of an export to tuples, so that equal columns compare equal."""
    for name in names:
        if isinstance(getattr(column, name), list):
            object.__setattr__(column, name, tuple(getattr(column, name)))
