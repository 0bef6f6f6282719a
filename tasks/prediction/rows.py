"""Interface to the records of an input: its partitions, read block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.tasks.prediction.partitions import Partition

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RecordFault:
    """A record that cannot be read or predicted."""

    record: int
    reason: str
    cells: Any


OnFault = Callable[[RecordFault], None]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Records in memory."""

    records: NDArray[np.int64]
    rows: Any
    keys: pa.Table
    invalid: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, rows: slice) -> Block:
        start, stop, _ = rows.indices(len(self))
        return replace(
            self,
            records=self.records[start:stop],
            rows=_sliced(self.rows, start, stop),
            keys=self.keys.slice(start, stop - start),
            invalid={name: which[start:stop] for name, which in self.invalid.items()},
        )

    def without(self, faulty: NDArray[np.bool_]) -> Block:
        """Return the block without some rows."""
        kept = np.flatnonzero(~faulty)
        return replace(
            self,
            records=self.records[kept],
            rows=_taken(self.rows, kept),
            keys=self.keys.take(kept),
            invalid={name: which[kept] for name, which in self.invalid.items()},
        )


class PredictionRows(ABC):
    """Records of an input, checked against the schema of a model."""

    keys: tuple[RawColumn, ...] = ()
    unused: tuple[str, ...] = ()

    @property
    @abstractmethod
    def num_records(self) -> int:
        """Number of records."""

    @abstractmethod
    def digest(self) -> str:
        """Return hexadecimal digits that identify the records; equal in all processes."""

    @abstractmethod
    def partitions(self) -> Iterator[Partition]:
        """Yield the partitions, which depend only on the input."""

    @abstractmethod
    def blocks(self, part: Partition, on_fault: OnFault | None) -> Iterator[Block]:
        """Yield the records of a partition; one is in memory at a time.

        Raises InputError if the input has changed, or cannot be read.
        """

    @abstractmethod
    def place(self, record: int) -> tuple[str, int]:
        """Return the file of a record, and its row number in it for display."""

    @property
    @abstractmethod
    def row_note(self) -> str:
        """Explains the row numbers."""

    @abstractmethod
    def not_finite(self, block: Block) -> Mapping[str, NDArray[np.bool_]]:
        """Return the rows with a missing, NaN or infinite cell, by the display name of the column or array."""

    def located(self, record: int) -> str:
        """Return the place of a record for display."""
        file, row = self.place(record)
        return f"{file}, row {row} ({self.row_note})"


def _sliced(rows: Any, start: int, stop: int) -> Any:
    if hasattr(rows, "column_names"):
        return rows.slice(start, stop - start)
    return {name: array[start:stop] for name, array in rows.items()} if isinstance(rows, dict) else rows[start:stop]


def _taken(rows: Any, kept: NDArray[np.int64]) -> Any:
    if hasattr(rows, "column_names"):
        return rows.take(kept)
    return {name: array[kept] for name, array in rows.items()} if isinstance(rows, dict) else rows[kept]
