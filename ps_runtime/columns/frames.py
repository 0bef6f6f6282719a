"""Columns that come as arrays, such as those of a DataFrame, as the table that a preprocessing reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.raw_types import cast_values, raw_type
from psflow.ps_runtime.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["table_of"]


def table_of(
    given: Mapping[str, Any], columns: Sequence[RawColumn], na_values: Sequence[str] | None = None
) -> pa.Table:
    """Return those of `columns` that are given; None and NaN are blank.

    Parameters
    ----------
    given : mapping of str to array-like
        Values of one length; of a column of text, words.
    columns : sequence of RawColumn
        What is wanted, of which some may be missing.
    na_values : sequence of str, optional
        For a model that has learned from delimited text: the words that are blank there, where white space around words
        is no part of them. Default: words are as they are.

    Raises
    ------
    InputError
        With all columns whose values are not those of their type.
    """
    import pyarrow as pa

    arrays: dict[str, pa.ChunkedArray] = {}
    faults = []
    for column in columns:
        if column.name not in given:
            continue
        try:
            values = pa.array(_flat(given[column.name]), from_pandas=True)
            arrays[column.name] = _as_column(pa.chunked_array([_words(values, na_values)]), column.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
            faults.append(f"column {column.name!r} is to be {column.type}: {error}")
    if faults:
        raise InputError(tuple(faults))
    return pa.table(arrays)


def _flat(values: Any) -> Any:
    """Return an array of rows as a sequence of rows, which pyarrow takes."""
    return list(values) if getattr(values, "ndim", 1) > 1 else values


def _words(values: pa.Array, na_values: Sequence[str] | None) -> pa.Array:
    """Return words as they are read from delimited text, if `na_values` are those of it; all else stays as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if na_values is None or not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return values
    words = pc.ascii_trim_whitespace(values.cast(pa.string()))
    blank = pc.is_in(words, value_set=pa.array(["", *na_values], pa.string()))
    return pc.if_else(blank, pa.scalar(None, pa.string()), words)


def _as_column(values: pa.ChunkedArray, wanted: str) -> pa.ChunkedArray:
    """Return values as a raw type: as they are if that is one of numbers where numbers are wanted."""
    found = raw_type(values.type)
    numbers = ("int64", "float32", "float64")
    return cast_values(values, found if found in numbers and wanted in numbers else wanted)
