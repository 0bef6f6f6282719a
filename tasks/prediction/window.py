"""Submits partitions to a Dask cluster, a few at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distributed import Client, Future, KilledWorker

from psflow.ps_runtime.cluster.fetching import fetched
from psflow.ps_runtime.cluster.slots import Slots
from psflow.ps_runtime.errors import PsflowError
from psflow.ps_runtime.shipping.pickles import Shipped
from psflow.tasks.completed_futures import completed_batches
from psflow.tasks.prediction.folder import PredictionFolder
from psflow.tasks.prediction.part_facts import PartFacts
from psflow.tasks.prediction.partitions import PARTITION_BYTES, Partition
from psflow.tasks.prediction.worker import PredictionWork, predict_in_turn

MAX_PARTS = 64
"""Partitions in one Dask task: so many that the task itself does not show, and progress still comes every second."""


class Partitions:
    """Remaining partitions with their settings, in one object, as Prefect inspects sequences."""

    def __init__(self, work: PredictionWork, left: Sequence[Partition]) -> None:
        self.work, self.left = work, left


def predicted_parts(client: Client, partitions: Partitions) -> Iterator[list[PartFacts]]:
    """Predict partitions on the cluster; yield the facts of finished parts several times a second, often none.

    A Dask task has one large partition, or some small ones, which together are no larger.

    Raises
    ------
    WaitTimeoutError
        If the cluster has had no worker for half a minute, or its scheduler is silent for minutes.
    Exception
        The error of the first failed partition, after all submitted tasks have ended; no others are submitted.

    Notes
    -----
    The scheduler holds only a few tasks for each slot of the cluster.
    """
    window = _Window(client, partitions)
    try:
        for batch in completed_batches(client, window.submitted(), window.submitted):
            yield window.taken(batch)
        if window.failure is not None:
            raise window.failure
    finally:
        window.cancel()


class _Window:
    """Limits the tasks on the cluster to as many as keep its slots busy."""

    def __init__(self, client: Client, partitions: Partitions) -> None:
        self.failure: Exception | None = None
        self._client, self._work = client, partitions.work
        self._shipped = Shipped(partitions.work, "the prediction")
        self._slots = Slots(client)
        self._left = deque(partitions.left)
        self._running: dict[Future[list[PartFacts]], list[Partition]] = {}
        self._may_have_room = True

    def submitted(self) -> list[Future[list[PartFacts]]]:
        """Submit tasks up to the limit, and return them."""
        if self.failure is not None or not self._left or not self._may_have_room:
            return []
        self._may_have_room = False
        window = self._slots.window()
        new: dict[Future[list[PartFacts]], list[Partition]] = {}
        while self._left and len(self._running) + len(new) < window:
            parts = self._next_parts(window)
            new[self._client.submit(_predicted, self._shipped, parts, pure=False)] = parts
        self._running |= new
        return list(new)

    def _next_parts(self, window: int) -> list[Partition]:
        """Take the partitions of a task: fewer towards the end, so that all slots end at about the same time."""
        most = max(1, min(MAX_PARTS, len(self._left) // window))
        parts = [self._left.popleft()]
        num_bytes = parts[0].num_bytes
        while len(parts) < most and (num_bytes := num_bytes + self._left[0].num_bytes) <= PARTITION_BYTES:
            parts.append(self._left.popleft())
        return parts

    def taken(self, batch: Sequence[Future[list[PartFacts]]]) -> list[PartFacts]:
        """Return the facts of finished partitions, and release them; keep the first failure."""
        facts: list[PartFacts] = []
        for future in batch:
            parts = self._running.pop(future)
            self._may_have_room = True
            result = fetched(self._slots, future)
            try:
                facts += result.result()
            except KilledWorker as error:
                self.failure = self.failure or self._lost(parts, error.allowed_failures + 1)
            except Exception as error:
                self.failure = self.failure or error
        return facts

    def cancel(self) -> None:
        """Cancel tasks that have not started."""
        self._client.cancel(list(self._running))

    def _lost(self, parts: Sequence[Partition], num_workers: int) -> PartitionLostError:
        """Return the error of a lost task: at its first unfinished partition, as it predicts them in order."""
        finished = PredictionFolder(self._work.output).finished(parts)
        part = next((part for part in parts if part.index not in finished), parts[-1])
        return PartitionLostError(part.file, part.first_in_file, part.num_records, num_workers)


def _predicted(work: Shipped[PredictionWork], parts: Sequence[Partition]) -> list[PartFacts]:
    return predict_in_turn(work.opened, parts)


@dataclass(eq=False)
class PartitionLostError(PsflowError):
    """All Dask workers that predicted a partition died."""

    file: str
    first_in_file: int
    num_records: int
    num_workers: int

    def __str__(self) -> str:
        last = self.first_in_file + self.num_records - 1
        return (
            f"{self.num_workers} Dask workers died while they predicted records {self.first_in_file} to {last} of "
            f"{self.file} (the first is 0): see their logs; the model may need more memory than a worker has"
        )
