"""Reads libsvm text: in each line a label and the nonzero features, as pairs of index and value."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from psflow.ps_runtime.columns.reading import split_type
from psflow.ps_runtime.tabular_files.base import (
    CHUNK_BYTES,
    ChunkRange,
    OnInvalid,
    OpenRecords,
    RecordError,
    RecordFormat,
)
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.libsvm_lines import FEATURES, LABEL, LibSvmLines, num_records
from psflow.ps_runtime.tabular_files.text_cells import inferred_type, parse_cells
from psflow.ps_runtime.tabular_files.text_file import INFERRED_ROWS, OpenText

if TYPE_CHECKING:
    import pyarrow as pa

MATRIX_BYTES = 32 * 1024**2
"""Maximum size of the matrix of a chunk with more than one record."""
MAX_FEATURES = 10**9 - 1
"""The type of an array states its length in at most nine digits."""
MAX_INFERRED_FEATURES = 4096
"""More must be stated explicitly, lest a single wrong index makes a matrix of gigabytes."""


@dataclass(frozen=True, kw_only=True)
class LibSvmText(RecordFormat):
    """Records as lines of libsvm, such as ``-1 3:0.5 8:2``, with two columns: ``label``, and the array ``features``.

    Text after a ``#`` is a comment. Lines without a record are skipped.
    """

    name: ClassVar[str] = "libsvm"
    suffixes: ClassVar[tuple[str, ...]] = (".libsvm", ".svm", ".svmlight")

    num_features: int | None = None
    zero_based: bool = False

    def faults(self) -> list[str]:
        """Return a sentence for each invalid option."""
        found = super().faults()
        number = self.num_features
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if number is not None and not (is_whole and 1 <= number <= MAX_FEATURES):
            expected = f"a whole number from 1 to {MAX_FEATURES:,}, or null for the largest index"
            found.append(f"num_features is {number!r}: expected {expected}")
        if not isinstance(self.zero_based, bool):
            found.append(f"zero_based is {self.zero_based!r}: expected true or false")
        if FEATURES in self.types:
            found.append(f"the type of column {FEATURES!r} is {self.types[FEATURES]!r}: it is always an array")
        return found

    @property
    def first_row(self) -> int:
        """The number of the first record of a file in messages: its line."""
        return 1

    @property
    def row_note(self) -> str:
        """How rows are counted."""
        return "rows are lines, from 1; lines without a record do not count"

    def open(self, file: DataFile) -> OpenRecords:
        """Return the open file; see `RecordFormat.open`."""
        return OpenLibSvm(file, self)


class OpenLibSvm(OpenText):
    """An open file of libsvm text."""

    names = (LABEL, FEATURES)

    def __init__(self, file: DataFile, record_format: LibSvmText) -> None:
        super().__init__(file)
        self._format = record_format

    def types(self, names: Sequence[str]) -> dict[str, str]:
        """Return the types of columns; labels have the type of the first lines. See `OpenRecords.types`."""
        types = {}
        if LABEL in names:
            types[LABEL] = self._label_type()
        if FEATURES in names:
            types[FEATURES] = (
                f"float32[{self._format.num_features or _num_features(self.file, self._format.zero_based)}]"
            )
        return {name: types[name] for name in names}

    def record_end(self, text: bytes) -> int:
        """Return the end of the last line of `text`; 0 if there is none."""
        return text.rfind(b"\n") + 1

    def check_end(self, text: bytes) -> None:
        """Accept any end: a last line truncated between two pairs looks whole."""

    def place_from(self, start: int, chunk_bytes: int) -> ChunkRange:
        """Return the range of a chunk, with few enough lines that its matrix stays small."""
        place = super().place_from(start, chunk_bytes)
        ends = np.flatnonzero(np.frombuffer(self.text_of(place), np.uint8) == ord("\n"))
        most = max(1, MATRIX_BYTES // (4 * (self._format.num_features or MAX_INFERRED_FEATURES)))
        return place if len(ends) <= most else ChunkRange(start, start + int(ends[most - 1]) + 1)

    def count(self, place: ChunkRange) -> int:
        """Return the number of lines of a chunk with a record; see `OpenRecords.count`."""
        return num_records(self.text_of(place))

    def read(self, place: ChunkRange, types: Mapping[str, str], on_invalid: OnInvalid | None = None) -> pa.Table:
        """Return the records of a chunk; see `OpenRecords.read`."""
        import pyarrow as pa

        lines = LibSvmLines(self.text_of(place))
        columns = {}
        if LABEL in types:
            columns[LABEL] = parse_cells(lines.labels(), types[LABEL], LABEL, on_invalid)
        if FEATURES in types:
            columns[FEATURES] = lines.features(split_type(types[FEATURES])[1] or 0, zero_based=self._format.zero_based)
        return pa.table({name: columns[name] for name in types})

    def _label_type(self) -> str:
        first = b"\n".join(self.inferred_text().split(b"\n", INFERRED_ROWS)[:INFERRED_ROWS])
        return inferred_type(LibSvmLines(first).labels())


@functools.lru_cache(maxsize=16)
def _num_features(file: DataFile, zero_based: bool) -> int:
    """Return the number of features for the largest index of a file, found in one pass over it."""
    largest = -1
    num_before = 0
    with OpenLibSvm(file, LibSvmText(zero_based=zero_based)) as records:
        for place in records.places(CHUNK_BYTES):
            try:
                lines = LibSvmLines(records.text_of(place))
                largest = max(largest, lines.largest_index)
            except RecordError as fault:
                raise replace(fault, record=num_before + (fault.record or 0)) from None
            num_before += len(lines)
    number = largest + 1 if zero_based else largest
    if number < 1:
        raise RecordError(
            "the file has no pair of index and value; set num_features, the number of features of a record"
        )
    if number > MAX_INFERRED_FEATURES:
        raise RecordError(
            f"the largest index is {largest}, but more than {MAX_INFERRED_FEATURES} features are not inferred; set "
            "num_features, but note that each record becomes a dense array of that size"
        )
    return number
