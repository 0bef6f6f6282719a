"""Computes the columns of a batch from its raw features, each once."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.computing import bucket_ids, hashed_ids, vocabulary_ids
from psflow.ps_runtime.columns.crossing import combination_ids
from psflow.ps_runtime.errors import InputError, ModelFnError, PsflowError
from psflow.ps_runtime.feature_columns.kinds import (
    BucketizedColumn,
    CategoricalColumn,
    CrossedColumn,
    HashBucketColumn,
    IdentityColumn,
    IndicatorColumn,
    NumericColumn,
    VocabularyColumn,
    WeightedColumn,
    ids_column,
    leaves_of,
)
from psflow.ps_runtime.feature_columns.raw_features import RawFeatures, Values


class IdValues(NamedTuple):
    """The ids of a categorical column in a batch."""

    ids: NDArray[np.int64]
    present: NDArray[np.bool_]
    weights: NDArray[np.float32] | None = None


class Transformation:
    """Computes the columns of one batch. Intermediate results that they share are computed once."""

    def __init__(self, features: Any) -> None:
        self._raw = RawFeatures(features)
        self._known: dict[Hashable, Any] = {}

    def numbers(self, column: NumericColumn | BucketizedColumn | IndicatorColumn) -> NDArray[np.float32]:
        """Return a dense column, ``(batch, width)`` in C order; for buckets and ids the number of occurrences.

        Raises
        ------
        InputError
            If its features are missing, or of another dtype or shape.
        ModelFnError
            If a normalizer_fn raises, or does not return numbers of the shape of the column.
        """
        if ("numbers", column) not in self._known:
            match column:
                case NumericColumn():
                    computed = self._numeric(column)
                case BucketizedColumn():
                    computed = _counts(self.ids(column), column.num_buckets)
                case IndicatorColumn():
                    of_ids = ids_column(column)
                    computed = _counts(self.ids(of_ids), of_ids.num_buckets)
                case _:
                    assert_never(column)
            self._known["numbers", column] = computed
        numbers: NDArray[np.float32] = self._known["numbers", column]
        return numbers

    def missing(self, key: str) -> NDArray[np.bool_]:
        """Return which numbers of a feature are NaN, in its shape; InputError if it is not numeric."""
        missing: NDArray[np.bool_] = np.isnan(self._raw.numbers(key))
        return missing

    def ids(self, column: CategoricalColumn) -> IdValues:
        """Return the ids of a categorical column.

        Raises InputError as `numbers` does; also if an integer is out of range.
        """
        if ("ids", column) not in self._known:
            self._known["ids", column] = self._computed(column)
        ids: IdValues = self._known["ids", column]
        return ids

    def _computed(self, column: CategoricalColumn) -> IdValues:
        match column:
            case VocabularyColumn():
                values = self._raw.values(column.key, column.dtype)
                return IdValues(_in_vocabulary(column, values), values.present)
            case HashBucketColumn():
                values = self._raw.values(column.key, column.dtype)
                hashed = hashed_ids(values.array, column.key, column.hash_bucket_size, missing_id=-1)
                return IdValues(hashed.reshape(values.present.shape), values.present)
            case IdentityColumn():
                return self._identity(column)
            case BucketizedColumn():
                return self._bucketized(column)
            case WeightedColumn():
                return self._weighted(column)
            case CrossedColumn():
                return self._crossed(column)
        assert_never(column)

    def _numeric(self, column: NumericColumn) -> NDArray[np.float32]:
        raw = self._raw.numbers(column.key)
        if not column.shape and raw.shape[1:] == (1,):
            raw = raw[:, 0]
        if raw.shape[1:] != column.shape:
            shape = (len(raw), *column.shape)
            raise InputError((f"feature {column.key!r} has the shape {raw.shape}, its column expects {shape}",))
        if column.default_value is not None and raw.dtype.kind == "f":
            raw = np.where(np.isnan(raw), np.reshape(column.default_value, column.shape), raw)
        size = math.prod(column.shape)
        if column.normalizer_fn is None:
            return np.asarray(raw, np.float32).reshape(len(raw), size)
        given = _normalized(column, raw)
        if given.size != len(raw) * size or len(given) != len(raw) or given.dtype.kind not in "fiub":
            got = f"{given.dtype}{list(given.shape)}"
            raise ModelFnError((f"normalizer_fn of column {column.name!r} returned {got}, expected {list(raw.shape)}",))
        return np.asarray(given, np.float32).reshape(len(raw), size)

    def _bucketized(self, column: BucketizedColumn) -> IdValues:
        numbers = self.numbers(column.source_column)
        if (missing := np.isnan(numbers).any(axis=1)).any():
            fault = f"is NaN in row {int(np.argmax(missing))} of the batch, which has no bucket"
            what = f"feature {column.source_column.key!r} {fault}; fill it, or give its column a default_value"
            raise InputError((what,))
        # in the precision of the numbers, so that a number equal to a boundary lies above it
        buckets = bucket_ids(numbers, np.asarray(column.boundaries, np.float32))
        ids = buckets + np.arange(numbers.shape[1]) * (len(column.boundaries) + 1)
        return IdValues(ids, np.ones(ids.shape, np.bool_))

    def _identity(self, column: IdentityColumn) -> IdValues:
        values = self._raw.integers(column.key)
        ids, present = values, values != -1
        too_large = present & (ids >= column.num_buckets)
        if column.default_value is not None:
            ids = np.where(present & ((ids < 0) | too_large), column.default_value, ids)
        elif too_large.any():
            row = int(np.argmax(too_large.any(axis=1)))
            value = ids[row][too_large[row]][0]
            raise InputError(
                (
                    f"feature {column.key!r} has {value} in row {row} of the batch, expected ids in "
                    f"[0, {column.num_buckets}); or give its column a default_value",
                )
            )
        return IdValues(ids, present)

    def _weighted(self, column: WeightedColumn) -> IdValues:
        ids, present, given = self.ids(column.categorical_column)
        weights = self._raw.numbers(column.weight_feature_key)
        key = column.weight_feature_key
        if weights.size != ids.size or len(weights) != len(ids):
            expected = f"a weight for each value of {column.categorical_column.name!r}, {list(ids.shape)}"
            raise InputError((f"feature {key!r} has the shape {list(weights.shape)}, expected {expected}",))
        factors = np.asarray(weights, np.float32).reshape(ids.shape)
        strays = (factors != 0) & ~present
        if strays.any():
            row = int(np.argmax(strays.any(axis=1)))
            fault = f"a weight in row {row} of the batch where {column.categorical_column.name!r} has no value"
            raise InputError((f"feature {key!r} has {fault}; expected 0 there",))
        return IdValues(ids, present, factors if given is None else factors * given)

    def _crossed(self, column: CrossedColumn) -> IdValues:
        members = [self._member(key) for key in leaves_of(column)]
        batch = len(members[0].ids)
        shape = (batch, *(member.ids.shape[1] for member in members))
        whole = [_along(axis, member, shape) for axis, member in enumerate(members)]
        present = np.logical_and.reduce([np.broadcast_to(found, shape) for _, found in whole])
        present = present.reshape(batch, math.prod(shape[1:]))
        flat = [np.broadcast_to(ids, shape).ravel() for ids, _ in whole]
        ids = combination_ids(flat, column.hash_bucket_size, column.hash_key or 0).reshape(present.shape)
        return IdValues(ids, present)

    def _member(self, key: str | CategoricalColumn) -> IdValues:
        if not isinstance(key, str):
            return self.ids(key)
        ids = self._raw.fingerprints(key)
        return IdValues(ids, np.ones(ids.shape, np.bool_))


def _along(axis: int, member: IdValues, shape: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the ids of a member of a cross along their own axis, and which are present."""
    own = [shape[0], *(length if place == axis else 1 for place, length in enumerate(shape[1:]))]
    return member.ids.reshape(own), member.present.reshape(own)


def _in_vocabulary(column: VocabularyColumn, values: Values) -> NDArray[np.int64]:
    import pyarrow as pa

    ids = vocabulary_ids(values.array, column.key, column.array)
    is_known = ids < len(column.vocabulary)
    unknown = ~is_known & values.present.ravel()
    if column.num_oov_buckets and unknown.any():
        others = values.array.filter(pa.array(unknown))
        ids[unknown] += hashed_ids(others, column.key, column.num_oov_buckets, missing_id=0)
    else:
        ids[unknown] = column.default_value
    return ids.reshape(values.present.shape)


def _counts(found: IdValues, num_ids: int) -> NDArray[np.float32]:
    """Return the number of occurrences of each id, or the sum of its weights, ``(batch, num_ids)``."""
    batch = len(found.ids)
    counted = found.present & (found.ids >= 0)
    places = (found.ids + np.arange(batch)[:, np.newaxis] * num_ids)[counted]
    weights = None if found.weights is None else found.weights[counted]
    counts = np.bincount(places, weights, batch * num_ids)
    return counts.reshape(batch, num_ids).astype(np.float32)


def _normalized(column: NumericColumn, raw: NDArray[Any]) -> NDArray[Any]:
    assert column.normalizer_fn is not None
    try:
        return np.asarray(column.normalizer_fn(raw.copy()))  # a copy, since it may be modified in place
    except PsflowError:
        raise
    except Exception as cause:
        fault = f"normalizer_fn of column {column.name!r} raised {type(cause).__name__}: {cause}"
        raise ModelFnError((fault,)) from cause
