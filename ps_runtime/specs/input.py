"""What the workers of a job read, as far as the job must know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["MAX_EPOCHS", "InputSize", "InputSpec", "RecordRange"]

MAX_EPOCHS = 2**32
"""No replica comes so far: from here on the orders of epochs are those of the next replica."""


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What the workers read."""

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
