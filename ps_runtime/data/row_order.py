"""The order of the rows of a data set in memory, and the passes that make an epoch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.shuffle_order import shuffled_rows
from psflow.ps_runtime.data.splittable import is_int

if TYPE_CHECKING:
    from psflow.ps_runtime.data.lazy_dataset import LazyDataset


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The settings of `shuffle`, `repeat` and `batch` of a Dataset, besides seed, batch size and number of epochs."""

    buffer_size: int | None = None
    reshuffles: bool = True
    num_joined: int | None = 1
    drop_remainder: bool = False
    is_batched: bool = False

    def num_records(self, num_rows: int, batch_size: int) -> int:
        """Return the records of an epoch."""
        number = self.num_passes(num_rows, batch_size) * num_rows
        return number - number % batch_size if self.drop_remainder else number

    def num_passes(self, num_rows: int, batch_size: int) -> int:
        """Return the passes over the rows that make one epoch."""
        return batch_size // math.gcd(batch_size, num_rows) if self.num_joined is None else self.num_joined

    def rows(
        self, seed: int | None, num_rows: int, batch_size: int, epoch: int, start: int, stop: int
    ) -> NDArray[np.int64]:
        """Return the rows at ``[start, stop)`` of an epoch."""
        if seed is None:
            return np.arange(start, stop) % num_rows
        size, first_pass = self.buffer_size or num_rows, epoch * self.num_passes(num_rows, batch_size)
        return shuffled_rows(seed, num_rows, size, first_pass, start, stop, reshuffles=self.reshuffles)

    def applied_to(self, rows: LazyDataset, seed: int | None, batch_size: int, num_epochs: int | None) -> LazyDataset:
        """Return the same order and batches of rows that are computed when they are read."""
        if seed is not None:
            rows = rows.shuffle(self.buffer_size or rows.elements.num_elements, seed, self.reshuffles)
        rows = rows.repeat(self.num_joined)
        if self.is_batched:
            rows = rows.batch(batch_size, self.drop_remainder)
        return rows.repeat(num_epochs)

    def faults(self) -> list[str]:
        """Return a sentence for each number that is out of range."""
        given = {"buffer_size": self.buffer_size, "num_joined": self.num_joined}
        return [
            f"{name} is {number!r}: expected an int >= 1"
            for name, number in given.items()
            if number is not None and not is_int(number, 1)
        ]


AS_STORED = RowOrder()
"""The order before any call of `shuffle`, `repeat` and `batch`."""
