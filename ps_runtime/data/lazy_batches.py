"""The batches of a lazy data set as an input that workers share batch by batch."""

from __future__ import annotations

from psflow.ps_runtime.data.arrays import num_rows
from psflow.ps_runtime.data.batch_check import Batch, checked_batch
from psflow.ps_runtime.data.elements import ElementAddress
from psflow.ps_runtime.data.enforcement import Enforcement, schema_of
from psflow.ps_runtime.data.lazy_dataset import LazyDataset
from psflow.ps_runtime.data.non_finite import NonFinite, RecordSource, non_finite_cells
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import InputSchema

FIRST = ElementAddress(0, 0)


class LazyBatches(SplittableInput):
    """Batches by number, each computed by its reader.

    Raises InputError if rows are to be dropped.

    Notes
    -----
    Thread-safe if the functions of the user are. Opening it computes nothing. The first batch, if it was computed to be
    inspected, is kept until something is read.
    """

    batch_size = 1

    def __init__(self, lazy: LazyDataset, where: str, non_finite: NonFinite, enforcement: Enforcement) -> None:
        if non_finite == "drop":
            raise InputError(
                (
                    f"{where}: non_finite is drop, but rows of a lazily computed data set cannot be "
                    "left out of its batches: use filter, or set non_finite to error or keep",
                )
            )
        self.num_epochs = lazy.num_epochs
        self._elements = lazy.elements
        self._where = where
        self._refuses = non_finite == "error"
        self._enforcement = enforcement
        self._first: tuple[InputSchema, int] | None = None  # schema and number of rows of the first batch
        self._kept: dict[ElementAddress, Batch] = {}

    @property
    def num_records(self) -> int:
        """Number of batches."""
        return self._elements.num_elements

    @property
    def window_records(self) -> int:
        """1: batches are read in any order."""
        return 1

    def read(self, epoch: int, start: int, stop: int) -> Batch:
        """Return the batch `start` of a pass; see `SplittableInput.read`."""
        if epoch < 0 or not 0 <= start < stop == start + 1 <= self.num_records:
            raise InputError(
                (
                    f"expected an epoch >= 0 and one of the {self.num_records} batches, "
                    f"got epoch {epoch}, batches [{start}, {stop})",
                )
            )
        address = ElementAddress(epoch, start)
        kept = self._kept.pop(FIRST, None)
        return self._read(address) if kept is None or address != FIRST else kept

    def _read(self, address: ElementAddress) -> Batch:
        [given] = self._elements.each([address])
        where = f"{self._elements.place(address)} of {self._where}"
        features, labels = checked_batch(given, where)
        self._enforcement = self._enforcement.for_batch(features, labels)
        features = self._enforcement.selected_batch(features, where, is_first=address == FIRST)
        if self._refuses:
            cells, _ = non_finite_cells(features, labels, source=RecordSource(where))
            if cells.num_rows:
                raise InputError(cells.faults())
        batch = self._enforcement.batch(features, labels, where)
        if address == FIRST:
            self._first = schema_of(*batch), num_rows(batch[0])
        return batch

    def first_non_finite_cell(self, epoch: int, start: int, stop: int) -> str:
        """Return column and row of such a cell; see `SplittableInput.first_non_finite_cell`."""
        batch = self.read(epoch, start, stop)
        return non_finite_cells(*batch, source=RecordSource(self._elements.place(ElementAddress(epoch, start))))[
            0
        ].first

    def schema(self) -> InputSchema:
        """Return the schema of a row of the first batch."""
        return self._looked_at()[0]

    @property
    def rows_per_record(self) -> int:
        """Rows of the first batch."""
        return self._looked_at()[1]

    def _looked_at(self) -> tuple[InputSchema, int]:
        if self._first is None:
            self._kept[FIRST] = self._read(FIRST)
        assert self._first is not None, "the first batch was read"
        return self._first
