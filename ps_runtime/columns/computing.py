"""Computes each kind of feature for all rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.features import (
    Array,
    BucketIds,
    Feature,
    FeatureGroup,
    HashIds,
    IdentityIds,
    IsMissing,
    LogOnePlus,
    ManyIds,
    MinMax,
    Number,
    Scalar,
    Standard,
    ValueWeights,
    VocabularyIds,
)
from psflow.ps_runtime.columns.hashing import hash_ids
from psflow.ps_runtime.columns.lists import values_of
from psflow.ps_runtime.columns.values import array_of, missing_rows, numbers_of, unique_strings
from psflow.ps_runtime.errors import CellError

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 16_384
"""Rows of a matrix that is written column by column: few enough to stay in the cache until the last column."""


def compute(feature: Feature, columns: Mapping[str, pa.Array], out: NDArray[np.float32] | None = None) -> NDArray[Any]:
    """Return a feature of all rows, as a C-contiguous array of its own; numbers in `out`, if it is given.

    Raises
    ------
    CellError
        If a number is not above -1 where its logarithm is taken, is not whole where whole numbers are expected, or is
        outside the range of ids; if a cell has too many values, or another number of weights than of values.
    """
    match feature:
        case Number() | IsMissing():
            numbers = np.empty(len(columns[feature.column]), np.float32) if out is None else out
            _write_columns((feature,), columns, numbers[:, np.newaxis])
            return numbers
        case FeatureGroup():
            num_rows = len(columns[feature.members[0].column])
            matrix = np.empty((num_rows, len(feature.members)), np.float32) if out is None else out
            _write_columns(feature.members, columns, matrix)
            return matrix
        case Array():
            return array_of(columns[feature.column])
        case VocabularyIds():
            fill = None if feature.fill is None else feature.vocabulary.index(feature.fill)
            return vocabulary_ids(columns[feature.column], feature.column, feature.array, fill)
        case HashIds():
            return _hashes(feature, columns[feature.column])
        case IdentityIds():
            return _identity(feature, numbers_of(columns[feature.column]))
        case BucketIds():
            return _buckets(feature, numbers_of(columns[feature.column]))
        case ManyIds():
            return _many_ids(feature, columns)
        case ValueWeights():
            return _value_weights(feature, columns[feature.column])
    assert_never(feature)


def vocabulary_ids(array: pa.Array, column: str, vocabulary: pa.Array, fill: int | None = None) -> NDArray[np.int64]:
    """Return the position of each value in `vocabulary`.

    It is the length of `vocabulary` for unknown values, and for missing ones without `fill`.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_string(array.type):
        places = pc.index_in(array, value_set=vocabulary)
    else:
        unique, rows = unique_strings(array, column)
        places = pc.index_in(unique, value_set=vocabulary).take(rows)
    ids: NDArray[np.int64] = places.fill_null(len(vocabulary)).to_numpy(zero_copy_only=False).astype(np.int64)
    if fill is not None:
        ids[missing_rows(array)] = fill
    return ids


def hashed_ids(array: pa.Array, column: str, num_buckets: int, missing_id: int) -> NDArray[np.int64]:
    """Return the hash of each value; see `hash_ids`."""
    strings, places = unique_strings(array, column)
    ids = np.append(hash_ids(strings.to_pylist(), num_buckets), missing_id)
    taken: NDArray[np.int64] = ids[places.fill_null(len(strings)).to_numpy(zero_copy_only=False)]
    return taken


def bucket_ids(numbers: NDArray[Any], edges: NDArray[Any]) -> NDArray[np.int64]:
    """Return the bucket of each number: 0 below the first edge; an edge lies in the bucket above it.

    NaN lies in the last bucket.
    """
    return np.searchsorted(edges, numbers, side="right").astype(np.int64, copy=False)


def _hashes(feature: HashIds, array: pa.Array) -> NDArray[np.int64]:
    missing_id = feature.num_buckets if feature.fill is None else int(hash_ids([feature.fill], feature.num_buckets)[0])
    return hashed_ids(array, feature.column, feature.num_buckets, missing_id)


def _identity(feature: IdentityIds, numbers: NDArray[Any]) -> NDArray[np.int64]:
    missing = np.isnan(numbers)
    known = np.where(missing, feature.limit if feature.fill is None else feature.fill, numbers)
    ids = np.where(np.isfinite(known), known, -1).astype(np.int64)
    wrong = ~missing & ((ids != numbers) | (numbers < 0) | (numbers >= feature.limit))
    if wrong.any():
        row = int(np.argmax(wrong))
        reason = f"expected a whole number from 0 to {feature.limit - 1}, got {numbers[row].item()!r}; raise num_ids"
        raise CellError(column=feature.column, row=row, reason=reason)
    return ids


def _buckets(feature: BucketIds, numbers: NDArray[Any]) -> NDArray[np.int64]:
    edges = np.array(feature.edges, np.float64)
    ids = bucket_ids(numbers, edges)
    ids[np.isnan(numbers)] = len(edges) + 1 if feature.fill is None else bucket_ids(np.array(feature.fill), edges)
    return ids


def _many_ids(feature: ManyIds, columns: Mapping[str, pa.Array]) -> NDArray[np.int64]:
    cells = values_of(columns[feature.column])
    if feature.weights is not None:
        weighed = values_of(columns[feature.weights]).lengths
        if (differ := weighed != cells.lengths).any():
            row = int(np.argmax(differ))
            reason = f"expected {cells.lengths[row]} weights, one for each value of {feature.column!r}"
            raise CellError(column=feature.weights, row=row, reason=f"{reason}, got {weighed[row]}")
    try:
        ids = compute(feature.of_each, {feature.column: cells.values})
    except CellError as error:
        raise CellError(column=feature.column, row=int(cells.rows[error.row]), reason=error.reason) from None
    ids[missing_rows(cells.values)] = -1
    return cells.spread(feature.column, feature.max_values, ids, -1)


def _value_weights(feature: ValueWeights, array: pa.Array) -> NDArray[np.float32]:
    cells = values_of(array)
    numbers = numbers_of(cells.values).astype(np.float32)
    if (wrong := ~np.isfinite(numbers)).any():
        place = int(np.argmax(wrong))
        reason = f"expected a finite number for each value, got {cells.values[place].as_py()!r}"
        raise CellError(column=feature.column, row=int(cells.rows[place]), reason=reason)
    return cells.spread(feature.column, feature.max_values, numbers, 0)


def _write_columns(members: Sequence[Scalar], columns: Mapping[str, pa.Array], matrix: NDArray[np.float32]) -> None:
    """Write each column directly into a matrix (rows, members)."""
    arrays = [columns[member.column] for member in members]
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite
        for first in range(0, len(matrix), BLOCK_ROWS):
            block = matrix[first : first + BLOCK_ROWS]
            for place, (member, array) in enumerate(zip(members, arrays, strict=True)):
                _write(member, array.slice(first, len(block)), first, block[:, place])


def _write(member: Scalar, array: pa.Array, first: int, out: NDArray[np.float32]) -> None:
    """Write the feature of some rows; `first` is the number of the first one."""
    match member:
        case Number():
            _write_numbers(member, numbers_of(array), first, out)
        case IsMissing():
            out[:] = missing_rows(array)
        case _:
            assert_never(member)


def _write_numbers(number: Number, values: NDArray[Any], first: int, out: NDArray[np.float32]) -> None:
    """Impute and normalize in the precision of float64."""
    if number.fill is not None and (missing := np.isnan(values)).any():
        values = np.where(missing, number.fill, values.astype(np.float64))
    match number.normalizer:
        case None:
            out[:] = values
        case Standard(mean, deviation):
            _rescale(values, mean, deviation, out)
        case MinMax(minimum, maximum):
            _rescale(values, minimum, maximum - minimum, out)
        case LogOnePlus():
            if (low := values <= -1).any():
                row = int(np.argmax(low))
                reason = f"expected a number above -1 for log1p, got {values[row].item()!r}"
                raise CellError(column=number.column, row=first + row, reason=reason)
            out[:] = np.log1p(values, dtype=np.float64)
        case _:
            assert_never(number.normalizer)


def _rescale(values: NDArray[Any], offset: float, spread: float, out: NDArray[np.float32]) -> None:
    centered = np.subtract(values, offset, dtype=np.float64)
    np.divide(centered, spread or 1.0, out=out, casting="same_kind")
