"""How a training replica reads a stream that no other replica reads for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from psflow.ps_runtime.client.training import TrainingClient
from psflow.ps_runtime.data.non_finite import Source, non_finite_cells
from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.roles.batches import name_in_stream
from psflow.ps_runtime.specs.input import RecordRange

__all__ = ["OwnStream"]

Batch = tuple[Any, Any]
"""Features and labels."""


class OwnStream:
    """Reads the granted batches of a stream of this replica's own, from its start.

    Batches that an earlier attempt has used are read and dropped.
    """

    def __init__(self, batches: Iterator[Batch], client: TrainingClient, input_fn: Callable[..., Any]) -> None:
        self._batches = batches
        self._client = client
        self._input_fn = input_fn
        self._num_read = 0
        self._last: Batch | None = None

    def first(self) -> Batch | None:
        """Return the first batch of all, without using it up; None if the stream is empty."""
        return self.read(RecordRange(0, 0, 1))

    def read(self, records: RecordRange) -> Batch | None:
        """Return the batch of `records`; None, and ps-0 knows of it, if the stream ended before it.

        Raises
        ------
        InputError
            If the input_fn failed.
        """
        # Each ticket is used or comes back before the next one: no batch before the last one is asked for.
        assert records.start >= self._num_read - 1, f"batch {records.start} after {self._num_read} were read"
        while self._num_read <= records.start:
            with user_code(self._input_fn, InputError, f"in {ModeKeys.TRAIN} mode"):
                batch = next(self._batches, None)
            if batch is None:
                self._client.end_input(self._num_read)
                return None
            self._last = batch
            self._num_read += 1
        return self._last

    def name_of(self, records: RecordRange) -> str:
        """Return what error texts call the batch of `records`."""
        return name_in_stream(records)

    def first_non_finite_cell(self, records: RecordRange, batch: Batch) -> str:
        """Return column and row of a blank, NaN or infinite cell of the batch of `records`; empty if there is none."""
        return non_finite_cells(*batch, source=Source(f"batch {records.start}"))[0].first
