"""The partitions of a prediction on a fake cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import KilledWorker

from psflow.ps_runtime.cluster import slots
from psflow.ps_runtime.errors import InputError
from psflow.tasks.prediction import task, window
from psflow.tasks.prediction.folder import PredictionFolder
from psflow.tasks.prediction.partitions import PARTITION_BYTES
from psflow.tasks.prediction.progress import PredictionProgress
from psflow.tasks.prediction.task import predict_partitions
from psflow.tasks.prediction.window import MAX_PARTS, PartitionLostError, Partitions
from tests.tasks.prediction.scoring import facts, part

PARTS = [part(i, 3 * i, 3 * i + 3) for i in range(10)]


class Cluster:
    """Runs what is submitted when it is asked what has completed: the first of all that run."""

    def __init__(self, slots: int, outcome: Callable[[Any], Any]) -> None:
        self.slots, self.outcome = slots, outcome
        self.submitted: list[list[int]] = []
        self.running: list[Any] = []
        self.most = 0

    def submit(self, function: Any, work: Any, parts: Any, *, pure: bool) -> Any:
        self.submitted.append([part.index for part in parts])
        return Future(lambda: [self.outcome(part) for part in parts])

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


def run(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    is_stopped: Callable[[], bool] = lambda: False,
    parts: Any = PARTS,
    output: str = "",
) -> Any:
    monkeypatch.setattr(window, "completed_batches", cluster.completed)
    monkeypatch.setattr(window, "fetched", lambda slots, future: future)  # which has its result
    monkeypatch.setattr(slots, "ask", lambda *given: {f"worker-{i}": 1 for i in range(cluster.slots)})
    monkeypatch.setattr(task, "PredictionProgress", Quiet)
    work: Any = SimpleNamespace(output=output)
    client: Any = cluster
    return predict_partitions.fn(client, Partitions(work, parts), is_stopped)


def test_few_partitions_are_submitted_ahead_and_all_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(2, lambda part: facts(part, rows=2, rejects=1))
    assert run(cluster, monkeypatch) == (20, 10)
    assert cluster.submitted == [[i] for i in range(10)]
    assert cluster.most == 8
    assert cluster.cancelled == []


def test_small_partitions_share_a_task_and_fewer_do_so_towards_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [part(i, 3 * i, 3 * i + 3) for i in range(1000)]
    cluster = Cluster(2, facts)
    assert run(cluster, monkeypatch, parts=parts) == (3000, 0)
    assert [index for group in cluster.submitted for index in group] == list(range(1000))
    sizes = [len(group) for group in cluster.submitted]
    assert sizes[0] == MAX_PARTS
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-8:] == [1] * 8


def test_a_task_has_at_most_the_bytes_of_one_large_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [replace(one, num_bytes=PARTITION_BYTES // 2) for one in PARTS]
    parts[2] = replace(parts[2], num_bytes=2 * PARTITION_BYTES)
    monkeypatch.setattr(window, "MAX_PARTS", 5)
    monkeypatch.setattr(slots, "AHEAD", 1)
    cluster = Cluster(1, facts)
    assert run(cluster, monkeypatch, parts=parts) == (30, 0)
    assert cluster.submitted == [[0, 1], [2], [3, 4], [5, 6], [7, 8], [9]]


def test_nothing_is_submitted_once_a_partition_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(part: Any) -> Any:
        if part.index in (3, 4):
            raise InputError((f"row {part.index}",))
        return facts(part)

    cluster = Cluster(1, outcome)
    with pytest.raises(InputError, match=r"^row 3$"):
        run(cluster, monkeypatch)
    assert cluster.submitted == [[0, 1], [2, 3], [4], [5], [6]]


def test_a_partition_whose_workers_die_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def outcome(part: Any) -> Any:
        worker: Any = None
        raise KilledWorker("key", worker, 3)

    words = r"4 Dask workers died while they predicted records 0 to 2 of in\.csv \(the first is 0\): see their logs"
    with pytest.raises(PartitionLostError, match=words):
        run(Cluster(1, outcome), monkeypatch, output=str(tmp_path))


def test_of_the_partitions_of_a_task_whose_workers_die_the_first_unfinished_one_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = PredictionFolder(str(tmp_path))

    def outcome(part: Any) -> Any:
        if part.index == 1:
            worker: Any = None
            raise KilledWorker("key", worker, 3)
        with folder.writing(f"{part.name}.csv") as stream:
            stream.write(b"abc")
        folder.note_part(part, facts(part))
        return facts(part)

    with pytest.raises(PartitionLostError, match=r"records 3 to 5 of in\.csv"):
        run(Cluster(1, outcome), monkeypatch, output=str(tmp_path))


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
