"""Values of a column for numpy: numbers with NaN for missing values, and distinct strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.reading import convert

if TYPE_CHECKING:
    import pyarrow as pa

MICROSECONDS_A_DAY = 86_400_000_000


def numbers_of(array: pa.Array) -> NDArray[Any]:
    """Return the numbers of a column of one value per record, NaN where a value is null.

    Booleans are 0 and 1, dates and timestamps are days since 1970-01-01. Without nulls the result may be a view of
    `array`: do not write into it.
    """
    import pyarrow as pa

    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_timestamp(array.type):
        microseconds = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return np.asarray(microseconds / MICROSECONDS_A_DAY, np.float64)
    numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return numbers


def array_of(array: pa.Array) -> NDArray[np.float32]:
    """Return a copy of the arrays of a column, as float32; NaN where a value, or a whole array, is null."""
    length = array.type.list_size
    values = array.values.slice(array.offset * length, len(array) * length)
    # the values of a null array are meaningless, and a table without rows may have no values at all
    numbers = np.array(numbers_of(values), np.float32).reshape(len(array), length)
    numbers[array.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return numbers


def missing_rows(array: pa.Array) -> NDArray[np.bool_]:
    """Return for each row whether it is null or NaN, or contains such a value."""
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_fixed_size_list(array.type):
        return np.asarray(np.isnan(array_of(array)).any(axis=1))
    missing: NDArray[np.bool_] = pc.is_null(array, nan_is_null=True).to_numpy(zero_copy_only=False)
    return missing


def unique_strings(array: pa.Array, column: str) -> tuple[pa.Array, pa.Array]:
    """Return the distinct strings of a column, and the index of each row's string, null for a missing value.

    Whole numbers are decimal, booleans ``true`` and ``false``, dates in ISO 8601; those of timestamps have six digits
    of a fraction of a second.

    Raises CellError if a number is not whole.
    """
    import pyarrow as pa

    if pa.types.is_floating(array.type):
        array = convert(array, "int64", column)
    encoded = array.dictionary_encode()
    return convert(encoded.dictionary, "string", column), encoded.indices
