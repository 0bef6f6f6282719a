"""How a training replica gets the batch that it was granted, of an input that the job shares out or of a data set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psflow.ps_runtime.client.training import TrainingClient
from psflow.ps_runtime.data.batch_codec import decode_batch
from psflow.ps_runtime.data.non_finite import Source, non_finite_cells
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.specs.input import MAX_EPOCHS, RecordRange

__all__ = ["BatchReader", "name_in_stream"]

Batch = tuple[Any, Any]
"""Features and labels."""


class BatchReader:
    """Reads granted batches: from the replica's own data set, or from the one reader of a stream."""

    def __init__(self, opened: SplittableInput | Iterator[Batch], client: TrainingClient, own_orders: int = 0) -> None:
        self._dataset = opened if isinstance(opened, SplittableInput) else None
        self._client = client
        self._first_order = own_orders * MAX_EPOCHS

    def first(self) -> Batch | None:
        """Return the first batch of all, without using it up; None if a stream is empty."""
        batch_size = 1 if self._dataset is None else min(self._dataset.batch_size, self._dataset.num_records)
        return self.read(RecordRange(0, 0, batch_size))

    def read(self, records: RecordRange) -> Batch | None:
        """Return the batch of `records`; None if the stream ended before it."""
        if self._dataset is not None:
            return self._dataset.read(self._first_order + records.epoch, records.start, records.stop)
        body = self._client.fetch(records.start)
        return None if body is None else decode_batch(body)

    def name_of(self, records: RecordRange) -> str:
        """Return what error texts call the batch of `records`."""
        if self._dataset is not None:
            return f"the batch of records {records.start} to {records.stop - 1} in epoch {records.epoch}"
        return name_in_stream(records)

    def first_non_finite_cell(self, records: RecordRange, batch: Batch) -> str:
        """Return column and row of a blank, NaN or infinite cell of the batch of `records`; empty if there is none."""
        if self._dataset is not None:
            order = self._first_order + records.epoch
            return self._dataset.first_non_finite_cell(order, records.start, records.stop)
        return non_finite_cells(*batch, source=Source(f"batch {records.start}"))[0].first


def name_in_stream(records: RecordRange) -> str:
    """Return what error texts call a batch of a stream."""
    return f"batch {records.start} of the {ModeKeys.TRAIN} input"
