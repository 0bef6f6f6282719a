"""Kinds of features, frozen, each with what was learned for it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from psflow.ps_runtime.columns.row_lifetime import UNLIMITED, RowLifetime

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """A feature as a model sees it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_ids: int | None = None
    embedding: int | None = None
    lifetime: RowLifetime = UNLIMITED
    combiner: str = ""
    weights: str = ""


@dataclass(frozen=True, slots=True)
class Standard:
    """``(x - mean) / standard_deviation``; 0 for a constant column."""

    mean: float
    standard_deviation: float


@dataclass(frozen=True, slots=True)
class MinMax:
    """``(x - minimum) / (maximum - minimum)``; 0 for a constant column."""

    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class LogOnePlus:
    """``log(1 + x)`` of numbers above -1."""


Normalizer = Standard | MinMax | LogOnePlus


@dataclass(frozen=True, slots=True)
class Number:
    """A number as float32. A missing value becomes `fill`, or NaN if that is None, before normalization."""

    column: str
    fill: float | None = None
    normalizer: Normalizer | None = None

    @property
    def name(self) -> str:
        """The name of the feature."""
        return self.column


@dataclass(frozen=True, slots=True)
class IsMissing:
    """1 where a value is missing, else 0, as float32."""

    column: str

    @property
    def name(self) -> str:
        """The name of the feature."""
        return f"{self.column}_is_missing"


@dataclass(frozen=True, slots=True)
class Array:
    """Arrays of numbers, `length` in each record, as float32."""

    column: str
    length: int

    @property
    def name(self) -> str:
        """The name of the feature."""
        return self.column


@dataclass(frozen=True)
class VocabularyIds:
    """Positions of strings in a vocabulary. Missing values become `fill`, or the last id, that of unknown strings.

    A learned vocabulary (`is_learned`) is in the order of falling counts, a given one in any order.
    """

    column: str
    vocabulary: tuple[str, ...]
    fill: str | None = None
    embedding: int | None = None
    is_learned: bool = False
    lifetime: RowLifetime = UNLIMITED

    @property
    def name(self) -> str:
        """The name of the feature."""
        return self.column

    @property
    def num_ids(self) -> int:
        """Number of ids: the vocabulary, and one for all other values."""
        return len(self.vocabulary) + 1

    @functools.cached_property
    def array(self) -> pa.Array:
        """The vocabulary as pyarrow looks it up."""
        import pyarrow as pa

        return pa.array(self.vocabulary, pa.string())


@dataclass(frozen=True, slots=True)
class HashIds:
    """Hashes of strings, below `num_buckets`; see `hash_ids`. Whole numbers hash as their decimal text.

    Missing values become `fill`, or the last id, which is their own.
    """

    column: str
    num_buckets: int
    fill: str | None = None
    embedding: int | None = None
    lifetime: RowLifetime = UNLIMITED

    @property
    def name(self) -> str:
        """The name of the feature."""
        return self.column

    @property
    def num_ids(self) -> int:
        """Number of ids: the buckets, and one for missing values."""
        return self.num_buckets + 1


@dataclass(frozen=True, slots=True)
class IdentityIds:
    """Whole numbers that are ids already, below `limit`. Missing values become `fill`, or the last id."""

    column: str
    limit: int
    fill: float | None = None
    embedding: int | None = None
    lifetime: RowLifetime = UNLIMITED

    @property
    def name(self) -> str:
        """The name of the feature."""
        return self.column

    @property
    def num_ids(self) -> int:
        """Number of ids: the numbers, and one for missing values."""
        return self.limit + 1


@dataclass(frozen=True, slots=True)
class BucketIds:
    """Buckets of numbers between ascending edges. Missing values become `fill`, or the last id.

    Bucket 0 lies below the first edge, and an edge lies in the bucket above it.
    """

    column: str
    edges: tuple[float, ...]
    fill: float | None = None
    embedding: int | None = None
    lifetime: RowLifetime = UNLIMITED

    @property
    def name(self) -> str:
        """The name of the feature."""
        return self.column

    @property
    def num_ids(self) -> int:
        """Number of ids: the buckets, one more than edges, and one for missing values."""
        return len(self.edges) + 2


OneId = VocabularyIds | HashIds | IdentityIds
"""The kinds of ids that the values of a cell become."""


@dataclass(frozen=True, slots=True)
class ManyIds:
    """The ids of the values of a cell, at most `max_values`, padded with -1.

    A missing value among others has no id either. `weights` names the column of their weights; None: 1 each.
    """

    of_each: OneId
    max_values: int
    combiner: str
    weights: str | None = None

    @property
    def name(self) -> str:
        """The name of the feature."""
        return self.column

    @property
    def column(self) -> str:
        """The column."""
        return self.of_each.column


@dataclass(frozen=True, slots=True)
class ValueWeights:
    """The weights of the values of a cell, as float32, padded with 0."""

    column: str
    max_values: int

    @property
    def name(self) -> str:
        """The name of the feature."""
        return self.column


Scalar = Number | IsMissing
"""The members of a group: one float32 in each record."""


@dataclass(frozen=True, slots=True)
class FeatureGroup:
    """One matrix of several columns."""

    name: str
    members: tuple[Scalar, ...]


Single = Scalar | Array | VocabularyIds | HashIds | IdentityIds | BucketIds | ManyIds | ValueWeights
"""The features of one column."""

Feature = Single | FeatureGroup


def spec_of(feature: Feature) -> FeatureSpec:
    """Return the description of a feature."""
    match feature:
        case Number() | IsMissing():
            return FeatureSpec(feature.name, "float32", ())
        case Array():
            return FeatureSpec(feature.name, "float32", (feature.length,))
        case FeatureGroup():
            return FeatureSpec(feature.name, "float32", (len(feature.members),))
        case VocabularyIds() | HashIds() | IdentityIds() | BucketIds():
            return FeatureSpec(feature.name, "int64", (), feature.num_ids, feature.embedding, feature.lifetime)
        case ManyIds(of_each, max_values, combiner, weights):
            num_ids, embedding, lifetime = of_each.num_ids, of_each.embedding, of_each.lifetime
            shape = (max_values,)
            return FeatureSpec(
                feature.name, "int64", shape, num_ids, embedding, lifetime, combiner, "" if weights is None else weights
            )
        case ValueWeights(_, max_values):
            return FeatureSpec(feature.name, "float32", (max_values,))
    assert_never(feature)


def singles(features: Iterable[Feature]) -> Iterator[Single]:
    """Yield all features, with the members of groups one by one."""
    for feature in features:
        yield from feature.members if isinstance(feature, FeatureGroup) else (feature,)
