"""An input that workers share: any of its records can be read at any time, by any process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from psflow.ps_runtime.data.arrays import Columns
from psflow.ps_runtime.data.invalid_cells import ALL_VALID, InvalidCells
from psflow.ps_runtime.data.non_finite import NonFiniteCells, RecordSource
from psflow.ps_runtime.specs.schema import InputSchema


class SplittableInput(ABC):
    """Records by number, of which psflow deals out ranges: each one is used once an epoch over all workers.

    Every process that opens the same input reads the same records under the same numbers.
    """

    batch_size: int
    """Records of a batch; the last one of an epoch may be smaller."""
    num_epochs: int | None
    """How often the records are read; None: for ever."""

    @property
    @abstractmethod
    def num_records(self) -> int:
        """Number of records of an epoch."""

    @property
    def rows_per_record(self) -> int:
        """1, unless a record is a batch: then the rows of the first one."""
        return 1

    @property
    @abstractmethod
    def window_records(self) -> int:
        """Records that are in memory together: who reads so many in turn reads them for the price of one; 1: any."""

    @abstractmethod
    def read(self, epoch: int, start: int, stop: int) -> tuple[Columns, Columns | None]:
        """Return records ``[start, stop)`` of the order of `epoch`.

        Parameters
        ----------
        epoch : int
            From 0. `num_epochs` does not bound it: who deals the ranges counts the epochs.
        start, stop : int
            ``0 <= start < stop <= num_records``.

        Returns
        -------
        features, labels : read-only arrays, ``(stop - start, ...)``
            Or mappings of such arrays; `labels` is None if there are none.

        Raises
        ------
        InputError
            If there is no such epoch or range, or the records cannot be read any more.
        """

    @abstractmethod
    def first_non_finite_cell(self, epoch: int, start: int, stop: int) -> str:
        """Return column and row, as the source counts it, of such a cell among records ``[start, stop)`` of an epoch.

        Empty if there is none.
        """

    @abstractmethod
    def schema(self) -> InputSchema:
        """Return what a record looks like."""


class KnownInput(SplittableInput):
    """Records of which all is known when the input is opened, because they are in memory or were scanned."""

    unused: tuple[str, ...]
    """Columns or arrays of the source that are neither features nor labels."""
    source: RecordSource
    """Where the records come from, for error texts."""
    non_finite: NonFiniteCells
    """The blank, NaN and infinite cells that were found when it was opened, before rows were left out."""
    invalid: InvalidCells = ALL_VALID
    """The cells that are not of the type of their column, of tabular files."""

    @property
    def num_examples(self) -> int:
        """Number of rows that an epoch reads; one that it reads several times counts once."""
        return self.num_records

    @abstractmethod
    def distinct_labels(self) -> Columns | None:
        """Return labels among which each that occurs is found, or, of very many numbers, the least and the greatest."""

    @abstractmethod
    def place_of_label(self, index: int, where: str) -> str:
        """Return the first row that has the label ``distinct_labels()[index]``, as the source counts rows.

        `where` is what error texts call the input.
        """

    @abstractmethod
    def order_facts(self) -> list[Any]:
        """Return numbers that differ for other orders or batches of the same records, as JSON has them."""

    @abstractmethod
    def digest(self) -> str:
        """Return 32 hexadecimal digits that differ for different records.

        The same for the same records in any process; batch size, epochs and seed do not count.
        """


def batching_faults(batch_size: object, num_epochs: object, shuffle_seed: object) -> list[str]:
    """Return a sentence for each of these that is out of its range."""
    faults = []
    if not is_int(batch_size, 1):
        faults.append(f"batch_size is {batch_size!r}: expected an int >= 1")
    if num_epochs is not None and not is_int(num_epochs, 1):
        faults.append(f"num_epochs is {num_epochs!r}: expected an int >= 1, or None to repeat for ever")
    if shuffle_seed is not None and not is_int(shuffle_seed, 0):
        faults.append(f"shuffle_seed is {shuffle_seed!r}: expected an int >= 0, or None not to shuffle")
    return faults


def is_int(value: object, minimum: int) -> bool:
    """Return whether a value is a whole number that is not less than `minimum`."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= minimum
