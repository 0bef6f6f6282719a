"""Parses lines of libsvm text, all lines together."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.raw_types import first_fault
from psflow.ps_runtime.tabular_files.base import RecordError

if TYPE_CHECKING:
    import pyarrow as pa

LABEL = "label"
FEATURES = "features"
QUERY = "qid:"
EXPECTED = "expected a label and then pairs such as 3:0.5"


class Pairs(NamedTuple):
    """All pairs of some lines."""

    records: NDArray[np.int64]
    """The line of each pair, ascending."""
    indices: NDArray[np.int64]
    values: NDArray[np.float32]


class LibSvmLines:
    """Some lines of libsvm text, without empty lines and comments.

    Raises
    ------
    RecordError
        Here and in all methods: for the first invalid line.
    """

    def __init__(self, text: bytes) -> None:
        import pyarrow.compute as pc

        lines = _records(text)
        tokens = pc.ascii_split_whitespace(pc.ascii_trim_whitespace(lines))
        self._lengths: NDArray[np.int64] = pc.list_value_length(tokens).to_numpy(zero_copy_only=False).astype(np.int64)
        self._tokens = tokens.flatten()
        self._is_first = np.zeros(len(self._tokens), np.bool_)
        self._is_first[np.cumsum(self._lengths) - self._lengths] = True
        self._first = self._tokens.filter(self._is_first)
        has_colon = pc.match_substring(self._first, ":").to_numpy(zero_copy_only=False)
        if has_colon.any():
            record = int(has_colon.argmax())
            raise RecordError(f"{EXPECTED}, got {_shown(self._first[record])} in place of the label", record)

    def __len__(self) -> int:
        return len(self._lengths)

    def labels(self) -> pa.ChunkedArray:
        """Return the text of each label, without the sign of positive ones (lines,)."""
        import pyarrow as pa
        import pyarrow.compute as pc

        return pa.chunked_array([pc.replace_substring_regex(self._first, r"^\+(\d)", r"\1")])

    @property
    def largest_index(self) -> int:
        """The largest index; -1 if there is no pair."""
        return int(self._pairs.indices.max(initial=-1))

    def features(self, num_features: int, *, zero_based: bool) -> pa.Array:
        """Return the features of each line as a float32 array of `num_features`, 0 without a pair."""
        import pyarrow as pa

        records, indices, values = self._pairs
        places = indices if zero_based else indices - 1
        if (wrong := (places < 0) | (places >= num_features)).any():
            self._refuse_index(int(wrong.argmax()), num_features, zero_based=zero_based)
        matrix = np.zeros((len(self), num_features), np.float32)
        matrix[records, places] = values
        return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), num_features)

    @cached_property
    def _pairs(self) -> Pairs:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = self._tokens.filter(~self._is_first)
        records = np.repeat(np.arange(len(self)), self._lengths - 1)
        parts = pc.split_pattern(texts, ":")
        has_two = pc.list_value_length(parts).to_numpy(zero_copy_only=False) == 2
        if not has_two.all():
            pair = int(has_two.argmin())
            raise _pair_fault(texts[pair], int(records[pair]))
        both = parts.flatten()
        indices, values = both.filter(_every_second(len(texts), 0)), both.filter(_every_second(len(texts), 1))
        try:
            found = Pairs(
                records, *(_cast(part, kind) for part, kind in ((indices, pa.int64()), (values, pa.float32())))
            )
        except pa.ArrowInvalid:
            pair = first_fault(len(texts), lambda n: (indices[:n].cast(pa.int64()), values[:n].cast(pa.float32())))
            raise _pair_fault(texts[pair], int(records[pair])) from None
        late = (np.diff(found.indices) <= 0) & (np.diff(records) == 0)
        if late.any():
            pair = int(late.argmax())
            before, after = found.indices[pair : pair + 2].tolist()
            raise RecordError(f"index {after} comes after {before}: expected ascending indices", int(records[pair]))
        return found

    def _refuse_index(self, pair: int, num_features: int, *, zero_based: bool) -> None:
        record, index = int(self._pairs.records[pair]), int(self._pairs.indices[pair])
        if index == 0:
            raise RecordError(
                "index 0: expected indices from 1; if the first feature has index 0, set zero_based: true", record
            )
        first, last = (0, num_features - 1) if zero_based else (1, num_features)
        raise RecordError(
            f"index {index}: expected indices from {first} to {last}, as there are {num_features} features; correct "
            "the line, or train with a larger num_features",
            record,
        )


def num_records(text: bytes) -> int:
    """Return the number of lines with a record, valid or not."""
    return len(_records(text))


def _records(text: bytes) -> pa.Array:
    """Return the lines that hold a record, without comments."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        whole = text.decode()
    except UnicodeDecodeError as error:
        before = text[: error.start].split(b"\n")
        record = len(_records(b"\n".join(before[:-1])))
        raise RecordError(f"expected UTF-8, got {before[-1][:40]!r}; convert the file to UTF-8", record) from None
    lines = pc.split_pattern(pa.array([whole], pa.large_string()), "\n").flatten().cast(pa.string())
    if "#" in whole:
        lines = pc.replace_substring_regex(lines, "#.*", "")
    return lines.filter(pc.match_substring_regex(lines, r"\S"))


def _every_second(length: int, first: int) -> NDArray[np.bool_]:
    chosen = np.zeros(2 * length, np.bool_)
    chosen[first::2] = True
    return chosen


def _cast(cells: pa.Array, kind: pa.DataType) -> NDArray[Any]:
    numbers: NDArray[Any] = cells.cast(kind).to_numpy(zero_copy_only=False)
    return numbers


def _pair_fault(text: pa.Scalar, record: int) -> RecordError:
    if text.as_py().startswith(QUERY):
        return RecordError(f"{_shown(text)} is a query id, which psflow does not read; remove it", record)
    return RecordError(f"{EXPECTED}, got {_shown(text)}", record)


def _shown(text: pa.Scalar) -> str:
    return repr(text.as_py()[:40])
