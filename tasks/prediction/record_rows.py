"""Rows of a prediction in tabular files: counted once, then read by their record index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.data.input_scan import faulty_rows
from psflow.ps_runtime.data.invalid_cells import rows_with_invalid
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.tabular_files.base import InvalidValues
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.reader import RecordReader
from psflow.tasks.prediction.options import PredictInvalid
from psflow.tasks.prediction.partitions import Partition, cut_records
from psflow.tasks.prediction.rows import Block, OnFault, PredictionRows, RecordFault

if TYPE_CHECKING:
    import pyarrow as pa

FLOAT32_MAX = float(np.finfo(np.float32).max)


class RecordRows(PredictionRows):
    """Records of files, for a model that was trained on tabular files."""

    def __init__(
        self, index: RecordIndex, preprocessing: Preprocessing, invalid: PredictInvalid, unused: tuple[str, ...] = ()
    ) -> None:
        self.index, self.unused = index, unused
        self._allows_invalid = invalid == "missing"
        self._filled = preprocessing.filled_columns
        self._names = [column.name for column in preprocessing.raw_columns]
        types = {column.name: column for column in index.columns}
        self.keys = tuple(types[key.name] for key in preprocessing.keys if key.name in types)

    @classmethod
    def counted(
        cls,
        given: RecordInput,
        schema: InputSchema,
        invalid: PredictInvalid,
        on_progress: Callable[[int, int], object] = lambda done, size: None,
    ) -> RecordRows:
        """Count the records of files; see `RecordInput.index`."""
        assert schema.preprocessing is not None
        found = given.index(schema, on_progress)
        unused = tuple(name for name in found.unused if name != schema.label)
        return cls(found.index, schema.preprocessing, invalid, unused)

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self.index.num_records

    def digest(self) -> str:
        """Return the digest of the record index."""
        return self.index.digest()

    def partitions(self) -> Iterator[Partition]:
        """Yield runs of chunks."""
        return cut_records(self.index)

    def blocks(self, part: Partition, on_fault: OnFault | None) -> Iterator[Block]:
        """Yield a block for each chunk, or for its readable part; see `PredictionRows.blocks`."""
        chunks = range(self.index.chunk_of(part.start), self.index.chunk_of(part.stop - 1) + 1)
        keys = [key.name for key in self.keys]
        with RecordReader(self.index, allows_invalid=self._allows_invalid) as reader:
            for chunk in chunks:
                for first, table, invalid in self._tables(reader, chunk, on_fault):
                    numbers = np.arange(first, first + table.num_rows)
                    yield Block(
                        numbers, table.select(self._names), table.select(keys), _by_column(invalid, len(numbers))
                    )
                    del table  # before the next one is loaded

    def place(self, record: int) -> tuple[str, int]:
        """Return the file of a record, and its row in it."""
        return self.index.place(record)

    @property
    def row_note(self) -> str:
        """Row numbering in these files."""
        return self.index.record_format.row_note

    def not_finite(self, block: Block) -> Mapping[str, NDArray[np.bool_]]:
        """Return such rows by column; imputed columns have no missing values."""
        doubtful = [name for name in self._names if not _is_finite(block.rows.column(name))]
        return {
            f"column {name!r}": rows for name, rows in faulty_rows(block.rows.select(doubtful), self._filled).items()
        }

    def _tables(
        self, reader: RecordReader, chunk: int, on_fault: OnFault | None
    ) -> Iterable[tuple[int, pa.Table, Sequence[InvalidValues]]]:
        if on_fault is None:
            return [(int(self.index.first_records[chunk]), reader.read_chunk(chunk), reader.invalid(chunk))]
        return reader.readable(chunk, lambda record, why, text: on_fault(RecordFault(record, why, text)))


def _by_column(invalid: Sequence[InvalidValues], num_rows: int) -> dict[str, NDArray[np.bool_]]:
    return {f"column {values.column!r}": rows_with_invalid([values], num_rows) for values in invalid}


def _is_finite(column: pa.ChunkedArray) -> bool:
    """Return True if a cheap check shows that a column has only finite float32 numbers."""
    import pyarrow as pa

    if column.null_count:
        return False
    if pa.types.is_integer(column.type):
        return True
    chunks = column.chunks
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow only causes a full check
        if pa.types.is_float32(column.type):
            return all(np.isfinite(chunk.to_numpy().sum()) for chunk in chunks)
        if pa.types.is_float64(column.type):
            return all(np.abs(chunk.to_numpy()).max(initial=0) <= FLOAT32_MAX for chunk in chunks)
    return False
