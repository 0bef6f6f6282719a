"""What a Dask worker predicts at a time: batches that were read for it, or a range of records that it reads itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from psflow.ps_runtime.data.arrays import Columns, map_columns, named_arrays, num_rows
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.model.evaluation import Batch, batches_of

__all__ = ["DealtBatches", "Partition", "RecordRange", "partitions_of"]

PARTITION_BYTES = 4 * 1024**2
"""Of the features of batches that travel together; a batch that is larger travels alone."""
PARTITION_BATCHES = 32
"""At most: a reader that is slow, or a model, is not waited for too long."""
MIN_PARTITIONS = 32
"""Of files that are large enough: they are predicted side by side though all of them fit into memory."""


@dataclass(frozen=True, slots=True, eq=False)
class DealtBatches:
    """The features of some batches in a row, of which the first record is number `first_record` of the input."""

    first_record: int
    num_records: int
    features: tuple[Columns, ...]

    def __str__(self) -> str:
        return _records(self.first_record, self.num_records)


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Records ``[start, stop)`` of files that the worker reads: whole batches, but for the last one."""

    start: int
    stop: int

    def __str__(self) -> str:
        return _records(self.start, self.stop - self.start)


Partition = DealtBatches | RecordRange


def partitions_of(opened: SplittableInput | Iterator[Batch]) -> Iterator[Partition]:
    """Yield the partitions of one epoch of an input, in the order of its records: each record is in one of them."""
    return _ranges(opened) if isinstance(opened, RecordDataset) else _dealt(batches_of(opened))


def _ranges(records: RecordDataset) -> Iterator[RecordRange]:
    """Cut at about the windows that are read at once, or finer if there are few of them, but never within a batch."""
    wanted = min(records.window_records, -(-records.num_records // MIN_PARTITIONS))
    size = -(-wanted // records.batch_size) * records.batch_size
    for start in range(0, records.num_records, size):
        yield RecordRange(start, min(start + size, records.num_records))


def _dealt(batches: Iterator[Batch]) -> Iterator[DealtBatches]:
    first_record, num_records, num_bytes, held = 0, 0, 0, list[Columns]()
    read = _Read(batches)
    for features, _ in read:
        nbytes = sum(array.nbytes for _, array in named_arrays(features))
        if held and (len(held) == PARTITION_BATCHES or num_bytes + nbytes > PARTITION_BYTES):
            yield DealtBatches(first_record, num_records, tuple(held))
            first_record, num_records, num_bytes, held = first_record + num_records, 0, 0, []
        held.append(map_columns(np.array, features))  # a generator may fill its arrays again
        num_records += num_rows(features)
        num_bytes += nbytes
    if held:
        yield DealtBatches(first_record, num_records, tuple(held))
    if read.failure is not None:
        raise read.failure


class _Read:
    """Gives batches until there are no more, or reading one fails: those before it are predicted first."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self.failure: Exception | None = None
        self._batches = batches

    def __iter__(self) -> Iterator[Batch]:
        try:
            yield from self._batches
        except Exception as error:
            self.failure = error


def _records(first: int, number: int) -> str:
    named = f"record {first}" if number == 1 else f"records {first} to {first + number - 1}"
    return f"{named} of the predict input (the first is 0)"
