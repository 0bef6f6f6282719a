"""Cells with several values: text that is split, and stored lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import CellError

if TYPE_CHECKING:
    import pyarrow as pa


class CellValues(NamedTuple):
    """The values of the cells of a column, concatenated."""

    values: pa.Array
    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def spread(self, column: str, max_values: int, values: NDArray[Any], absent: float) -> NDArray[Any]:
        """Return `values`, computed from the values of the cells, as an array ``(rows, max_values)`` in C order.

        Raises CellError if a cell has more values than fit.
        """
        if (long := self.lengths > max_values).any():
            row = int(np.argmax(long))
            reason = f"expected at most {max_values} values, got {self.lengths[row]}; raise max_values"
            raise CellError(column=column, row=row, reason=reason)
        spread = np.full((len(self.lengths), max_values), absent, values.dtype)
        spread[self.rows, self.places] = values
        return spread


def split_cells(array: pa.Array, separator: str) -> pa.Array:
    """Return text as lists of the texts between separators, without surrounding white space; empty ones are null."""
    import pyarrow as pa
    from pyarrow import compute as pc

    cells = array.cast(pa.string())
    missing = pc.equal(pc.ascii_trim_whitespace(cells), "")
    lists = pc.split_pattern(pc.if_else(missing, None, cells), separator).cast(pa.list_(pa.string()))
    texts = pc.ascii_trim_whitespace(pc.list_flatten(lists))
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return pa.ListArray.from_arrays(_offsets(_lengths(lists)), texts)


def values_of(array: pa.Array) -> CellValues:
    """Return the values of a column of lists; a null list has none."""
    from pyarrow import compute as pc

    lengths = _lengths(array)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    return CellValues(pc.list_flatten(array), np.repeat(np.arange(len(array)), lengths), places, lengths)


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    from pyarrow import compute as pc

    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _offsets(lengths: NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
