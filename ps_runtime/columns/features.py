"""What columns become: a kind for each way, frozen, with what was learned for it."""

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
    """A feature, as a model sees it."""

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
    """``(x - mean) / standard_deviation``; of a constant column 0."""

    mean: float
    standard_deviation: float


@dataclass(frozen=True, slots=True)
class MinMax:
    """``(x - minimum) / (maximum - minimum)``; of a constant column 0."""

    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class LogOnePlus:
    """``log(1 + x)`` of numbers above -1."""


Normalizer = Standard | MinMax | LogOnePlus


@dataclass(frozen=True, slots=True)
class Number:
    """A number as float32; a blank becomes `fill`, or NaN where that is None, and is then normalized as others are."""

    column: str
    fill: float | None = None
    normalizer: Normalizer | None = None

    @property
    def name(self) -> str:
        """The name of the feature."""
        return self.column


@dataclass(frozen=True, slots=True)
class IsMissing:
    """1 where a column is blank, else 0, as float32."""

    column: str

    @property
    def name(self) -> str:
        """The name of the feature."""
        return f"{self.column}_is_blank"


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
    """Places of words in a vocabulary. Blanks become `fill`; without it they have the last id, that of unknown words.

    Words that are learned (`is_learned`) fall in their count, those that are given are in any order.
    """

    column: str
    words: tuple[str, ...]
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
        """Number of ids: the words, and one for all others."""
        return len(self.words) + 1

    @functools.cached_property
    def array(self) -> pa.Array:
        """The words as pyarrow looks them up."""
        import pyarrow as pa

        return pa.array(self.words, pa.string())


@dataclass(frozen=True, slots=True)
class HashIds:
    """Hashes of words, below `num_buckets`; see `hash_ids`. Whole numbers hash as their decimal text.

    Blanks become `fill`; without it they have an id of their own, the last.
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
        """Number of ids: the buckets, and one for blanks."""
        return self.num_buckets + 1


@dataclass(frozen=True, slots=True)
class IdentityIds:
    """Whole numbers that are ids already, below `limit`. Blanks become `fill`; without it they have an id, the last."""

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
        """Number of ids: those of numbers, and one for blanks."""
        return self.limit + 1


@dataclass(frozen=True, slots=True)
class BucketIds:
    """Places of numbers between ascending edges. Blanks become `fill`; without it they have an id, the last.

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
        """Number of ids: the buckets, one more than edges, and one for blanks."""
        return len(self.edges) + 2


OneId = VocabularyIds | HashIds | IdentityIds
"""What a value becomes in a cell of several."""


@dataclass(frozen=True, slots=True)
class ManyIds:
    """The ids of the values of a cell, at most `max_values`; -1 where there is no further one.

    A value that is blank among others has no id either. `weights` names the column of their weights, None: 1 each.
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
    """The weights of the values of a cell, as float32; 0 where there is no further one."""

    column: str
    max_values: int

    @property
    def name(self) -> str:
        """The name of the feature."""
        return self.column


Scalar = Number | IsMissing
"""What a group is made of: one float32 in each record."""


@dataclass(frozen=True, slots=True)
class Group:
    """One matrix of several columns."""

    name: str
    members: tuple[Scalar, ...]


Single = Scalar | Array | VocabularyIds | HashIds | IdentityIds | BucketIds | ManyIds | ValueWeights
"""What one column becomes."""

Feature = Single | Group


def spec_of(feature: Feature) -> FeatureSpec:
    """Return the description of a feature."""
    match feature:
        case Number() | IsMissing():
            return FeatureSpec(feature.name, "float32", ())
        case Array():
            return FeatureSpec(feature.name, "float32", (feature.length,))
        case Group():
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
    """Yield all features, those of groups one by one."""
    for feature in features:
        yield from feature.members if isinstance(feature, Group) else (feature,)
