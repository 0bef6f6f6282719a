"""Inputs that workers share: any process can read any record at any time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from psflow.ps_runtime.data.arrays import Columns
from psflow.ps_runtime.data.invalid_cells import ALL_VALID, InvalidCells
from psflow.ps_runtime.data.non_finite import NonFiniteCells, RecordSource
from psflow.ps_runtime.specs.schema import InputSchema


class SplittableInput(ABC):
    """Records by number, which psflow distributes in ranges: each record is used once per epoch over all workers.

    Every process that opens the same input reads the same records under the same numbers.
    """

    batch_size: int
    """Records of a batch; the last one of an epoch may be smaller."""
    num_epochs: int | None
    """Number of passes over the records; None: forever."""

    @property
    @abstractmethod
    def num_records(self) -> int:
        """Number of records of an epoch."""

    @property
    def rows_per_record(self) -> int:
        """1, unless a record is a batch: then the rows of the first batch."""
        return 1

    @property
    @abstractmethod
    def window_records(self) -> int:
        """Records that are read into memory together, so reading them in turn is cheap; 1: any order is."""

    @abstractmethod
    def read(self, epoch: int, start: int, stop: int) -> tuple[Columns, Columns | None]:
        """Return records ``[start, stop)`` of the order of `epoch`.

        Parameters
        ----------
        epoch : int
            From 0. `num_epochs` does not bound it: the distributor of ranges counts the epochs.
        start, stop : int
            ``0 <= start < stop <= num_records``.

        Returns
        -------
        features, labels : read-only arrays, ``(stop - start, ...)``
            Or mappings of such arrays; `labels` is None if there are none.

        Raises
        ------
        InputError
            If there is no such epoch or range, or the records are no longer readable.
        """

    @abstractmethod
    def first_non_finite_cell(self, epoch: int, start: int, stop: int) -> str:
        """Return column and source row of a missing, NaN or infinite cell among records ``[start, stop)`` of an epoch.

        Empty if there is none.
        """

    @abstractmethod
    def schema(self) -> InputSchema:
        """Return the schema of a record."""


class KnownInput(SplittableInput):
    """Records in memory or scanned ones, about which everything is known when the input is opened."""

    unused: tuple[str, ...]
    """Columns or arrays of the source that are neither features nor labels."""
    source: RecordSource
    """The origin of the records, for error messages."""
    non_finite: NonFiniteCells
    """The missing, NaN and infinite cells that were found when it was opened, before rows were left out."""
    invalid: InvalidCells = ALL_VALID
    """The invalid cells of tabular files."""

    @property
    def num_examples(self) -> int:
        """Number of distinct rows that an epoch reads."""
        return self.num_records

    @abstractmethod
    def distinct_labels(self) -> Columns | None:
        """Return labels that include each one that occurs; of very many numbers only the smallest and the largest."""

    @abstractmethod
    def place_of_label(self, index: int, where: str) -> str:
        """Return the first row that has the label ``distinct_labels()[index]``, as the source counts rows.

        `where` names the input in error messages.
        """

    @abstractmethod
    def order_facts(self) -> list[Any]:
        """Return JSON-compatible numbers that identify order and batches."""

    @abstractmethod
    def digest(self) -> str:
        """Return 32 hexadecimal digits that identify the records.

        The same for the same records in any process; batch size, epochs and seed do not count.
        """


def batching_faults(batch_size: object, num_epochs: object, shuffle_seed: object) -> list[str]:
    """Return a sentence for each argument that is out of range."""
    faults = []
    if not is_int(batch_size, 1):
        faults.append(f"batch_size is {batch_size!r}: expected an int >= 1")
    if num_epochs is not None and not is_int(num_epochs, 1):
        faults.append(f"num_epochs is {num_epochs!r}: expected an int >= 1, or None to repeat forever")
    if shuffle_seed is not None and not is_int(shuffle_seed, 0):
        faults.append(f"shuffle_seed is {shuffle_seed!r}: expected an int >= 0, or None not to shuffle")
    return faults


def is_int(value: object, minimum: int) -> bool:
    """Return whether a value is a whole number of at least `minimum`."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= minimum
