"""What the workers of a job read, as far as the job must know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["MAX_EPOCHS", "InputSize", "InputSpec", "RecordRange"]

MAX_EPOCHS = 2**32
"""No replica comes so far: from here on the orders of epochs are those of the next replica."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What the workers read.

    Parameters
    ----------
    num_records : int or None
        Records of an epoch; None for a stream, which has one epoch and whose end shows only when it is reached.
        A record of a stream is a whole batch.
    batch_size : int
        Records of a batch; the last one of a split may have fewer.
    num_epochs : int or None
        None: for ever.
    split_batches : int
        Batches of an input split: what one worker reads in one go.
    each_worker_reads_all : bool
        Whether each replica reads the whole input for itself; else all replicas share it, so that each record is used
        once an epoch.
    rows_per_record : int
        1 where a record is a row, or a batch of a stream; else the rows of the first batch, where batches are known by
        their numbers. A position counts records, so it says nothing of an input whose records have another size.
    """

    num_records: int | None
    batch_size: int = 1
    num_epochs: int | None = 1
    split_batches: int = 8
    each_worker_reads_all: bool = False
    rows_per_record: int = 1

    @property
    def size(self) -> InputSize:
        """What a position in the input counts: in an input of another size it is no position."""
        return InputSize(self.num_records, self.rows_per_record)

    @property
    def is_stream(self) -> bool:
        """Whether the input can only be read from its start, and not be split."""
        return self.num_records is None

    @property
    def has_one_reader(self) -> bool:
        """Whether one reader beside ps-0 deals out the batches: the replicas share a stream."""
        return self.is_stream and not self.each_worker_reads_all


class InputSize(NamedTuple):
    """How many records an epoch has, None for a stream, and how many rows a record; see `InputSpec`."""

    num_records: int | None
    rows_per_record: int = 1

    def __str__(self) -> str:
        if self.num_records is None:
            return "a generator"
        number = f"{self.num_records:,}"
        return (
            f"{number} records" if self.rows_per_record == 1 else f"{number} batches of {self.rows_per_record:,} rows"
        )


class RecordRange(NamedTuple):
    """Records ``[start, stop)`` of the order of an epoch."""

    epoch: int
    start: int
    stop: int
