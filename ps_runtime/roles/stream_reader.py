"""The one reader of an input that cannot be split: it runs the user's generator beside ps-0."""

from __future__ import annotations

import logging
import threading
import zlib
from typing import Any

from psflow.ps_runtime.data.batch_codec import encode_batch
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.input_pipeline import InputContext, open_input
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.errors import InputError, PsflowError
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.specs.roles import RoleId

__all__ = ["StreamReader"]

READ_AHEAD_BATCHES = 4

logger = logging.getLogger(__name__)


class StreamReader:
    """Reads a stream as far as it is asked to, a few batches ahead.

    After a restore it reads the stream from its start again and drops what is used already; so it does after a first
    OSError, unless the whole job is in this process. Batches that are not the same then end the job with that error.
    """

    job_requests: JobRequests

    def __init__(self, job: JobSpec, post: Any, role: RoleId | None = None) -> None:
        self._job = job
        self._post = post
        self._is_alone = role is None
        self._when = f"in {ModeKeys.TRAIN} mode" + ("" if role is None else f" on {role}")
        self._wanted = -1
        self._num_told = 0
        self._checksum = 0
        """Of the batches told, in their order."""
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
        """Stop reading after the batch under way. Idempotent; a generator that blocks is left to its daemon thread."""
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
                # as a role begins again, once, whose file system or network was away
                logger.warning(
                    "%s; reading the input again from its start, and skipping the batches that were used", error
                )
                self._attempt(error)
        except PsflowError as error:  # it ends the job, not this thread
            text = str(error)
            self._tell(lambda: self.job_requests.stream_failed(text))

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
            if count >= self._num_told:
                self._tell(lambda i=count, b=batch: self.job_requests.batch_read(i, b))
                self._num_told, self._checksum = count + 1, checksum
            count += 1
            if first_error is not None and count == self._num_told and checksum != self._checksum:
                raise _changed(first_error, f"its first {count} batches are others now")
        if first_error is not None and count < self._num_told:
            raise _changed(first_error, f"it ended after {count} batches, and {self._num_told} were used")
        self._tell(lambda: self.job_requests.stream_ended(count))

    def _may_read(self, index: int) -> bool:
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed or index <= self._wanted)
            return not self._is_closed

    def _tell(self, event: Any) -> None:
        with self._condition:
            if self._is_closed:
                return
        self._post(event)


def _changed(first_error: InputError, what: str) -> InputError:
    """Return the error of a stream that cannot be read twice."""
    return InputError(
        tuple(f"{fault}; when the input was read again from its start, {what}" for fault in first_error.faults)
    )
