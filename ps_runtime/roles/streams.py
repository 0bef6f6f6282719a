"""Reads the batches of replicas: from their own input, or from the one reader of a stream beside ps-0."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from psflow.ps_runtime.client.training import TrainingClient
from psflow.ps_runtime.data.batch_codec import decode_batch, encode_batch
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.input_pipeline import InputContext, open_input
from psflow.ps_runtime.data.non_finite import RecordSource, non_finite_cells
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.errors import InputError, PsflowError
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.specs.input import MAX_EPOCHS, RecordRange
from psflow.ps_runtime.specs.roles import RoleId

Batch = tuple[Any, Any]
"""Features and labels."""


class BatchReader:
    """Reads granted batches: from the replica's own data set, or from the one reader of a stream."""

    def __init__(self, opened: SplittableInput | Iterator[Batch], client: TrainingClient, own_orders: int = 0) -> None:
        self._dataset = opened if isinstance(opened, SplittableInput) else None
        self._client = client
        self._first_order = own_orders * MAX_EPOCHS

    def first(self) -> Batch | None:
        """Return the first batch, without using it up; None if a stream is empty."""
        batch_size = 1 if self._dataset is None else min(self._dataset.batch_size, self._dataset.num_records)
        return self.read(RecordRange(0, 0, batch_size))

    def read(self, records: RecordRange) -> Batch | None:
        """Return the batch of `records`; None if the stream ended before it."""
        if self._dataset is not None:
            return self._dataset.read(self._first_order + records.epoch, records.start, records.stop)
        body = self._client.fetch(records.start)
        return None if body is None else decode_batch(body)

    def name_of(self, records: RecordRange) -> str:
        """Return the name of the batch of `records` in error messages."""
        if self._dataset is not None:
            return f"the batch of records {records.start} to {records.stop - 1} in epoch {records.epoch}"
        return name_in_stream(records)

    def first_non_finite_cell(self, records: RecordRange, batch: Batch) -> str:
        """Return column and row of a missing, NaN or infinite value in the batch of `records`, or ""."""
        if self._dataset is not None:
            order = self._first_order + records.epoch
            return self._dataset.first_non_finite_cell(order, records.start, records.stop)
        return non_finite_cells(*batch, source=RecordSource(f"batch {records.start}"))[0].first


def name_in_stream(records: RecordRange) -> str:
    """Return the name of a batch of a stream in error messages."""
    return f"batch {records.start} of the {ModeKeys.TRAIN} input"


class PrivateStream:
    """Reads the granted batches of a replica's private stream, from its start.

    Batches that an earlier attempt has used are read and dropped.
    """

    def __init__(self, batches: Iterator[Batch], client: TrainingClient, input_fn: Callable[..., Any]) -> None:
        self._batches = batches
        self._client = client
        self._input_fn = input_fn
        self._num_read = 0
        self._last: Batch | None = None

    def first(self) -> Batch | None:
        """Return the first batch, without using it up; None if the stream is empty."""
        return self.read(RecordRange(0, 0, 1))

    def read(self, records: RecordRange) -> Batch | None:
        """Return the batch of `records`; None, reported to ps-0, if the stream ended before it.

        Raises InputError if the input_fn failed.
        """
        # Each ticket is used or returned before the next one: no earlier batch is requested.
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
        """Return the name of the batch of `records` in error messages."""
        return name_in_stream(records)

    def first_non_finite_cell(self, records: RecordRange, batch: Batch) -> str:
        """Return column and row of a missing, NaN or infinite value in the batch of `records`, or ""."""
        return non_finite_cells(*batch, source=RecordSource(f"batch {records.start}"))[0].first


READ_AHEAD_BATCHES = 4

logger = logging.getLogger(__name__)


class StreamReader:
    """Reads a stream on request, a few batches ahead.

    After a restore it reads the stream from its start again and drops the used batches; likewise after a first OSError,
    unless the whole job is in this process. If the batches then differ, the job ends with that error.
    """

    job_requests: JobRequests

    def __init__(self, job: JobSpec, post: Any, role: RoleId | None = None) -> None:
        self._job = job
        self._post = post
        self._is_alone = role is None
        self._when = f"in {ModeKeys.TRAIN} mode" + ("" if role is None else f" on {role}")
        self._wanted = -1
        self._num_reported = 0
        self._checksum = 0
        """Of the reported batches, in order."""
        self._condition = threading.Condition()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def want(self, index: int) -> None:
        """Read on, at least up to batch `index`."""
        with self._condition:
            self._wanted = max(self._wanted, index + READ_AHEAD_BATCHES)
            self._condition.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="psflow-reader", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop reading after the batch under way. Idempotent; a blocking generator is left to its daemon thread."""
        with self._condition:
            self._is_closed = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            try:
                self._attempt()
            except InputError as error:
                if self._is_alone or not isinstance(error.__cause__, OSError):
                    raise
                # as a role restarts, once, if its file system or network was away
                logger.warning(
                    "%s; reading the input again from its start, and skipping the batches that were used", error
                )
                self._attempt(error)
        except PsflowError as error:  # it ends the job, not this thread
            text = str(error)
            self._forward(lambda: self.job_requests.stream_failed(text))

    def _attempt(self, first_error: InputError | None = None) -> None:
        with user_code(self._job.train_spec.input_fn, InputError, self._when):
            self._read(first_error)

    def _read(self, first_error: InputError | None) -> None:
        train_spec = self._job.train_spec
        opened = open_input(
            train_spec.input_fn,
            InputContext(1, 0),
            mode=ModeKeys.TRAIN,
            params=self._job.params,
            config=self._job.config,
            non_finite=train_spec.non_finite,
            enforcement=Enforcement(self._job.model.train_input, "the train input"),
        )
        assert not isinstance(opened, SplittableInput), "the job was planned for a stream"
        count = checksum = 0
        for features, labels in opened:
            if not self._may_read(count):
                return
            batch = encode_batch(features, labels)
            checksum = zlib.crc32(batch, checksum)
            if count >= self._num_reported:
                self._forward(lambda i=count, b=batch: self.job_requests.batch_read(i, b))
                self._num_reported, self._checksum = count + 1, checksum
            count += 1
            if first_error is not None and count == self._num_reported and checksum != self._checksum:
                raise _changed(first_error, f"its first {count} batches differ now")
        if first_error is not None and count < self._num_reported:
            raise _changed(first_error, f"it ended after {count} batches, and {self._num_reported} were used")
        self._forward(lambda: self.job_requests.stream_ended(count))

    def _may_read(self, index: int) -> bool:
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or index <= self._wanted)
            return not self._is_closed

    def _forward(self, event: Any) -> None:
        with self._condition:
            if self._is_closed:
                return
        self._post(event)


def _changed(first_error: InputError, what: str) -> InputError:
    """Return the error of a stream that cannot be read twice."""
    return InputError(
        tuple(f"{fault}; when the input was read again from its start, {what}" for fault in first_error.faults)
    )
