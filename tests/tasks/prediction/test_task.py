"""The partitions of a prediction on a fake cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import KilledWorker

from psflow.ps_runtime.cluster import slots
from psflow.ps_runtime.errors import InputError
from psflow.tasks.prediction import task, window
from psflow.tasks.prediction.progress import PredictionProgress
from psflow.tasks.prediction.task import predict_partitions
from psflow.tasks.prediction.window import PartitionLostError, Partitions
from tests.tasks.prediction.scoring import facts, part

PARTS = [part(i, 3 * i, 3 * i + 3) for i in range(10)]


class Cluster:
    """Runs what is submitted when it is asked what has completed: the first of all that run."""

    def __init__(self, slots: int, outcome: Callable[[Any], Any]) -> None:
        self.slots, self.outcome = slots, outcome
        self.submitted: list[int] = []
        self.running: list[Any] = []
        self.most = 0

    def submit(self, function: Any, work: Any, part: Any, *, pure: bool) -> Any:
        self.submitted.append(part.index)
        return Future(lambda: self.outcome(part))

    def cancel(self, futures: list[Any]) -> None:
        self.cancelled = futures

    def completed(self, client: Any, futures: Any, more: Callable[[], Any]) -> Iterator[list[Any]]:
        running = list(futures)
        while running:
            self.most = max(self.most, len(running))
            yield [running.pop(0)]
            running += more()


class Future:
    def __init__(self, result: Callable[[], Any]) -> None:
        self.result = result


class Quiet(PredictionProgress):
    """Counts, and tells nobody."""

    def __init__(self, left: Any) -> None:
        self.rows = self.rejects = self._parts = 0
        self._num_parts = len(left)

    def report(self) -> None:
        pass


def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_stopped: Callable[[], bool] = lambda: False) -> Any:
    monkeypatch.setattr(window, "completed_batches", cluster.completed)
    monkeypatch.setattr(window, "fetched", lambda slots, future: future)  # which has its result
    monkeypatch.setattr(slots, "ask", lambda *given: {f"worker-{i}": 1 for i in range(cluster.slots)})
    monkeypatch.setattr(task, "PredictionProgress", Quiet)
    work: Any = SimpleNamespace()
    client: Any = cluster
    return predict_partitions.fn(client, Partitions(work, PARTS), is_stopped)


def test_few_partitions_are_submitted_ahead_and_all_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(2, lambda part: facts(part, rows=2, rejects=1))
    assert run(cluster, monkeypatch) == (20, 10)
    assert cluster.submitted == list(range(10))
    assert cluster.most == 8
    assert cluster.cancelled == []


def test_nothing_is_submitted_once_a_partition_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(part: Any) -> Any:
        if part.index in (3, 4):
            raise InputError((f"row {part.index}",))
        return facts(part)

    cluster = Cluster(1, outcome)
    with pytest.raises(InputError, match=r"^row 3$"):
        run(cluster, monkeypatch)
    assert cluster.submitted == [0, 1, 2, 3, 4, 5, 6]


def test_a_partition_whose_workers_die_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(part: Any) -> Any:
        worker: Any = None
        raise KilledWorker("key", worker, 3)

    words = r"4 Dask workers died while they predicted records 0 to 2 of in\.csv \(the first is 0\): see their logs"
    with pytest.raises(PartitionLostError, match=words):
        run(Cluster(1, outcome), monkeypatch)


@pytest.mark.parametrize(("num_before", "is_cancelled"), [(9, True), (10, False)])
def test_an_interrupt_with_the_last_partition_leaves_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, num_before: int, is_cancelled: bool
) -> None:
    done: list[int] = []

    def outcome(part: Any) -> Any:
        done.append(part.index)
        return facts(part)

    answer = run(Cluster(2, outcome), monkeypatch, lambda: len(done) >= num_before)
    assert (answer.name == "Cancelled") if is_cancelled else (answer == (30, 0))
