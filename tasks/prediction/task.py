"""The partitions of a prediction on a Dask cluster, as one Prefect task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distributed import Client, Future
from prefect import get_run_logger, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled

from psflow.ps_runtime.data.non_finite import NonFiniteCells
from psflow.ps_runtime.deadline import Deadline
from psflow.tasks.completed import completed_batches
from psflow.tasks.prediction.inputs import PredictionInput
from psflow.tasks.prediction.model import ModelInfo
from psflow.tasks.prediction.output import Partition
from psflow.tasks.prediction.partition import predict_partition

__all__ = ["PredictionJob", "predict_partitions"]

PROGRESS_EVERY_SECS = 1.0


@dataclass(frozen=True, slots=True)
class PredictionJob:
    """What is predicted: the rows of `input`, whose data have `digest`, with `model`, into the folder `output`.

    `non_finite` tells of the cells of the input that are blank, NaN or infinite; `unused` are columns or arrays of it
    that the model does not read.
    """

    model: ModelInfo
    input: PredictionInput
    digest: str
    num_rows: int
    output: str
    non_finite: NonFiniteCells
    unused: tuple[str, ...] = ()


@task(name="predict partitions", cache_policy=NO_CACHE, persist_result=False)
def predict_partitions(
    client: Client, job: PredictionJob, parts: Sequence[Partition], is_stopped: Callable[[], bool]
) -> int | State[Any]:
    """Predict `parts` on the cluster, and return how many rows they have; a Cancelled state if it was stopped.

    Parameters
    ----------
    client : Client
        Of the cluster to predict on.
    job : PredictionJob
        The model, its input, and where the predictions go.
    parts : sequence of Partition
        Those that are not written yet.
    is_stopped : callable
        Asked several times a second; once it says True, what has not begun is cancelled.

    Raises
    ------
    WaitTimeoutError
        If the cluster has had no worker for half a minute.
    Exception
        What the first failed partition failed with.
    """
    progress = _Progress(len(parts))
    futures: list[Future[int]] = [
        client.submit(predict_partition, job.model, job.input, job.digest, part, job.output, pure=False)
        for part in parts
    ]
    num_done = num_rows = 0
    try:
        for batch in completed_batches(client, futures):
            num_rows += sum(future.result() for future in batch)
            num_done += len(batch)
            if num_done < len(parts) and is_stopped():
                return Cancelled(message="it was interrupted; run the same command again to do the rest")
            progress.tell(num_done)
        return num_rows
    finally:
        client.cancel(futures)


class _Progress:
    """Tells how far it is, on the terminal and in the Prefect UI, at most once a second."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._logger = get_run_logger()
        self._artifact = create_progress_artifact(0.0, description="Partitions that are predicted.")
        self._next_time = Deadline(PROGRESS_EVERY_SECS)
        self._told = 0

    def tell(self, num_done: int) -> None:
        if num_done == self._told or (num_done < self._total and not self._next_time.has_passed):
            return
        self._next_time, self._told = Deadline(PROGRESS_EVERY_SECS), num_done
        self._logger.info("predicted %s of %s partitions", num_done, self._total)
        update_progress_artifact(self._artifact, 100.0 * num_done / self._total)  # type: ignore[arg-type]
