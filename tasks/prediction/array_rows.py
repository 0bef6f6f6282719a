"""Rows of a prediction in arrays in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.arrays import named_arrays
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.non_finite import non_finite_cells
from psflow.tasks.prediction.partitions import Partition, cut_arrays
from psflow.tasks.prediction.rows import Block, OnFault, PredictionRows

BLOCK_BYTES = 4 * 1024**2


class ArrayRows(PredictionRows):
    """Records of array files such as npz or IDX, and of tabular files for a model that was trained on arrays."""

    def __init__(self, data: Dataset, unused: tuple[str, ...] = ()) -> None:
        self._data, self.unused = data, unused
        specs = data.schema().features
        self._record_bytes = sum(np.dtype(spec.dtype).itemsize * int(np.prod(spec.shape)) for spec in specs)

    @property
    def num_records(self) -> int:
        """Number of records."""
        return self._data.num_records

    def digest(self) -> str:
        """Return the digest of all arrays."""
        return self._data.digest()

    def partitions(self) -> Iterator[Partition]:
        """Yield ranges of rows."""
        return cut_arrays(self.num_records, self._record_bytes, self._data.source.name)

    def blocks(self, part: Partition, on_fault: OnFault | None) -> Iterator[Block]:
        """Yield views of rows; see `PredictionRows.blocks`."""
        import pyarrow as pa

        step = max(1, BLOCK_BYTES // self._record_bytes)
        for start in range(part.start, part.stop, step):
            stop = min(start + step, part.stop)
            yield Block(np.arange(start, stop), self._data.read(0, start, stop)[0], pa.table({}))

    def place(self, record: int) -> tuple[str, int]:
        """Return the display name of the input, and the row in it."""
        return self._data.source.name, self._data.source.first_row + record

    @property
    def row_note(self) -> str:
        """Row numbering of the arrays."""
        return self._data.source.note

    def not_finite(self, block: Block) -> Mapping[str, NDArray[np.bool_]]:
        """Return such rows by column of a matrix, or by array."""
        cells, _ = non_finite_cells(block.rows, None, self._data.column_names)
        names = {column.name for column in cells.columns}
        if not names:
            return {}
        found: dict[str, NDArray[np.bool_]] = {}
        for name, array in named_arrays(block.rows):
            columns = self._data.column_names.get(name, ())
            bad = np.zeros(array.shape, np.bool_)
            if array.dtype.kind in "fc":
                np.logical_not(np.isfinite(array), out=bad)
            if columns:
                found |= {f"column {column!r}": bad[:, place] for place, column in enumerate(columns)}
            else:
                found[name] = np.asarray(bad.reshape(len(bad), -1).any(axis=1))
        return {name: rows for name, rows in found.items() if name in names}
