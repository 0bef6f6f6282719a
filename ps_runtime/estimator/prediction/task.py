"""The Dask task of `Estimator.predict`: predicts one partition, batch by batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never, final

import numpy as np

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.cluster.failures import raised_at
from psflow.ps_runtime.cluster.fast_exit import leave_quickly
from psflow.ps_runtime.cluster.role_task import Liveness
from psflow.ps_runtime.cluster.worker_facts import this_worker
from psflow.ps_runtime.data.arrays import Columns, map_columns, named_arrays, num_rows
from psflow.ps_runtime.data.record_dataset import Batching, RecordDataset
from psflow.ps_runtime.data.scanned_input import ScannedInput
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.errors import CheckpointError, ModelFnError, PsflowError
from psflow.ps_runtime.estimator.prediction.predictions import Predictions, choose
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.evaluation import Batch, batches_of, read_values
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.one_thread import one_thread
from psflow.ps_runtime.shipping.pickles import Shipped
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.schema import InputSchema

PARTITION_BYTES = 4 * 1024**2
"""Limit for the features of batches that travel together; a larger batch travels alone."""
PARTITION_BATCHES = 32
"""Upper limit, so that a slow reader or model does not delay the results for too long."""
MIN_PARTITIONS = 32
"""For files that are large enough: they are predicted in parallel though all of them fit into memory."""


@dataclass(frozen=True, slots=True, eq=False)
class DealtBatches:
    """The features of consecutive batches; `first_record` is the number of their first record in the input."""

    first_record: int
    num_records: int
    features: tuple[Columns, ...]

    def __str__(self) -> str:
        return _records(self.first_record, self.num_records)


@dataclass(frozen=True, slots=True)
class FilePartition:
    """The records ``[start, stop)`` of files that the worker reads: whole batches, except the last one."""

    start: int
    stop: int

    def __str__(self) -> str:
        return _records(self.start, self.stop - self.start)


Partition = DealtBatches | FilePartition


def partitions_of(opened: SplittableInput | Iterator[Batch]) -> Iterator[Partition]:
    """Yield the partitions of one epoch of an input, in record order; each record is in exactly one partition."""
    return _ranges(opened) if isinstance(opened, RecordDataset) else _dealt(batches_of(opened))


def _ranges(records: RecordDataset) -> Iterator[FilePartition]:
    """Split at about the windows that are read at once, or finer if there are few of them, but never within a batch."""
    wanted = min(records.window_records, -(-records.num_records // MIN_PARTITIONS))
    size = -(-wanted // records.batch_size) * records.batch_size
    for start in range(0, records.num_records, size):
        yield FilePartition(start, min(start + size, records.num_records))


def _dealt(batches: Iterator[Batch]) -> Iterator[DealtBatches]:
    first_record, num_records, num_bytes, held = 0, 0, 0, list[Columns]()
    read = _Read(batches)
    for features, _ in read:
        nbytes = sum(array.nbytes for _, array in named_arrays(features))
        if held and (len(held) == PARTITION_BATCHES or num_bytes + nbytes > PARTITION_BYTES):
            yield DealtBatches(first_record, num_records, tuple(held))
            first_record, num_records, num_bytes, held = first_record + num_records, 0, 0, []
        held.append(map_columns(np.array, features))  # a generator may reuse its arrays
        num_records += num_rows(features)
        num_bytes += nbytes
    if held:
        yield DealtBatches(first_record, num_records, tuple(held))
    if read.failure is not None:
        raise read.failure


class _Read:
    """Yields batches until the end, or until reading one fails: the batches before it are predicted first."""

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


NOT_OF_A_RECORD = (MemoryError, ImportError, ModelFnError)
"""Errors that no record causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionJob:
    """The values that all partitions of a prediction share."""

    model_fn: Callable[..., EstimatorSpec]
    params: Mapping[str, Any]
    config: RunConfig
    model_dir: str
    host: str
    step: int
    saved_at: float
    schema: InputSchema | None
    keys: tuple[str, ...]
    records: tuple[ScannedInput, Batching] | None


@final
class SharedJob:
    """A job shared by the partitions in one process, with the readers opened for it; Dask drops both together."""

    def __init__(self, job: PredictionJob) -> None:
        self._shipped = Shipped(job, "the prediction")

    def __getstate__(self) -> dict[str, Shipped[PredictionJob]]:
        """Return the state that travels."""
        return {"_shipped": self._shipped}

    @functools.cached_property
    def opened(self) -> OpenedJob:
        """The job in this process, opened once; CheckpointError if the checkpoint is not readable here."""
        job = self._shipped.opened
        caller = ModelCaller(job.model_fn, job.params, job.config, job.schema)
        records = None if job.records is None else RecordDataset(*job.records)
        return OpenedJob(job, caller, _values(job), records)


def predict_partition(shared: SharedJob, partition: Partition) -> list[tuple[Predictions, int]]:
    """Return the predictions and the number of rows of each batch of a partition. The body of a Dask task; repeatable.

    Raises
    ------
    CheckpointError
        If this process cannot read the checkpoint.
    ModelFnError
        If model_fn fails on a record, which the message names, or returns hooks.
    StoppedError
        If the partition was cancelled.
    """
    leave_quickly()
    liveness = Liveness.of_this_task(str(partition))
    opened = shared.opened
    predictions = []
    with one_thread():
        for features, place in opened.batches(partition):
            liveness.check()
            predictions.append((opened.predict(features, place), num_rows(features)))
    return predictions


Place = Callable[[int, int], str]
"""Names rows ``[start, stop)`` of a batch."""


@dataclass(frozen=True, slots=True)
class OpenedJob:
    """A job opened in this process."""

    job: PredictionJob
    caller: ModelCaller
    values: ModelValues
    records: RecordDataset | None

    def batches(self, partition: Partition) -> Iterator[tuple[Columns, Place]]:
        """Yield the features of each batch, and a function that names its rows."""
        match partition:
            case DealtBatches():
                first = partition.first_record
                for features in partition.features:
                    yield features, functools.partial(_place, None, first)
                    first += num_rows(features)
            case FilePartition():
                assert self.records is not None, "ranges are of files"
                for start in range(partition.start, partition.stop, self.records.batch_size):
                    stop = min(start + self.records.batch_size, partition.stop)
                    yield self.records.read(0, start, stop)[0], functools.partial(_place, self.records, start)
            case _:
                assert_never(partition)

    def predict(self, features: Columns, place: Place) -> Predictions:
        """Return the predictions for a batch; ModelFnError names the record on which model_fn fails."""
        try:
            spec = self._call(features)
        except NOT_OF_A_RECORD:
            raise
        except Exception as error:
            start, stop = _failing_rows(self._call, features)
            why = str(error) if isinstance(error, PsflowError) else f"raised {error!r}{raised_at(error)}"
            raise ModelFnError((f"{place(start, stop)}: {self.caller.name}: {why}",)) from None
        if spec.prediction_hooks:
            raise ModelFnError(
                (
                    f"{self.caller.name} returned prediction_hooks, which run in one process, around all batches: call "
                    "predict without client, or return none",
                )
            )
        return choose(spec.predictions, self.job.keys)

    def _call(self, features: Columns) -> EstimatorSpec:
        return self.caller.apply(features, None, ModeKeys.PREDICT, self.values, self.job.step)


def _values(job: PredictionJob) -> ModelValues:
    store = CheckpointStore(job.model_dir)
    try:
        reader = CheckpointReader(store, job.step)
        if reader.manifest.saved_at == job.saved_at:
            return read_values(reader)
        reason = "it sees another checkpoint of that step"
    except (CheckpointError, OSError) as error:
        reason = error.reason if isinstance(error, CheckpointError) else str(error)
    raise CheckpointError(
        store.path(job.step),
        f"{this_worker()} cannot read it, but the process that predicts, on {job.host}, can ({reason}); put the "
        "model_dir where every Dask worker sees it under the same path: on a shared disk or in an object store",
    )


def _failing_rows(call: Callable[[Columns], object], features: Columns) -> tuple[int, int]:
    """Return the bounds of the first rows that fail, found by bisection: one row, if it fails alone."""

    def fails(start: int, stop: int) -> bool:
        try:
            call(map_columns(lambda array: array[start:stop], features))
        except Exception:  # the error to locate
            return True
        return False

    start, stop = 0, num_rows(features)
    while stop - start > 1:
        middle = (start + stop) // 2
        if fails(start, middle):
            stop = middle
        elif fails(middle, stop):
            start = middle
        else:
            break
    return start, stop


def _place(records: RecordDataset | None, first: int, start: int, stop: int) -> str:
    partition = FilePartition(first + start, first + stop)
    return str(partition) if records is None or stop - start > 1 else records.place(0, partition.start)
