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
from psflow.tasks.prediction.part_facts import PartFacts
from psflow.tasks.prediction.partitions import Partition
from psflow.tasks.prediction.worker import PredictionWork, predict_partition


class Partitions:
    """Remaining partitions with their settings, in one object, as Prefect inspects sequences."""

    def __init__(self, work: PredictionWork, left: Sequence[Partition]) -> None:
        self.work, self.left = work, left


def predicted_parts(client: Client, partitions: Partitions) -> Iterator[list[PartFacts]]:
    """Predict partitions on the cluster; yield the facts of finished parts several times a second, often none.

    Raises
    ------
    WaitTimeoutError
        If the cluster has had no worker for half a minute, or its scheduler is silent for minutes.
    Exception
        The error of the first failed partition, after all submitted partitions have ended; no others are submitted.

    Notes
    -----
    The scheduler holds only a few partitions for each slot of the cluster.
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
    """Limits the partitions on the cluster to as many as keep its slots busy."""

    def __init__(self, client: Client, partitions: Partitions) -> None:
        self.failure: Exception | None = None
        self._client, self._work = client, Shipped(partitions.work, "the prediction")
        self._slots = Slots(client)
        self._left = deque(partitions.left)
        self._running: dict[Future[PartFacts], Partition] = {}
        self._may_have_room = True

    def submitted(self) -> list[Future[PartFacts]]:
        """Submit partitions up to the limit, and return them."""
        if self.failure is not None or not self._left or not self._may_have_room:
            return []
        self._may_have_room = False
        room = self._slots.window() - len(self._running)
        parts = [self._left.popleft() for _ in range(min(room, len(self._left)))]
        new = {self._client.submit(_predicted, self._work, part, pure=False): part for part in parts}
        self._running |= new
        return list(new)

    def taken(self, batch: Sequence[Future[PartFacts]]) -> list[PartFacts]:
        """Return the facts of finished partitions, and release them; keep the first failure."""
        facts = []
        for future in batch:
            part = self._running.pop(future)
            self._may_have_room = True
            result = fetched(self._slots, future)
            try:
                facts.append(result.result())
            except KilledWorker as error:
                lost = PartitionLostError(part.file, part.first_in_file, part.num_records, error.allowed_failures + 1)
                self.failure = self.failure or lost
            except Exception as error:
                self.failure = self.failure or error
        return facts

    def cancel(self) -> None:
        """Cancel partitions that have not started."""
        self._client.cancel(list(self._running))


def _predicted(work: Shipped[PredictionWork], part: Partition) -> PartFacts:
    return predict_partition(work.opened, part)


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
