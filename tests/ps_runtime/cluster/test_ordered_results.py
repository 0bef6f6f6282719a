"""Results in the order of the partitions, from a cluster in this process."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import dask
import pytest
from distributed import Client, LocalCluster

from psflow.ps_runtime.cluster import ordered_results as module
from psflow.ps_runtime.cluster import slots
from psflow.ps_runtime.cluster.ordered_results import ordered_results
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import RoleFailedError, StoppedError, UsageError, WaitTimeoutError
from tests.leak_guard import no_leaks

pytestmark = pytest.mark.cluster(shared=True)

BOTH, SECOND, GO_ON = threading.Barrier(2), threading.Event(), threading.Event()
"""The workers are threads of this process."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        no_leaks(),
        dask.config.set({"temporary-directory": str(tmp_path_factory.mktemp("dask"))}),
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(meet, range(2), pure=False))  # both threads are there from now on
        yield client


def meet(number: int) -> int:
    BOTH.wait()
    return number


def joined(common: bytes, partition: int) -> str:
    return f"{common.decode()}{partition}"


def second_first(common: bytes, partition: int) -> int:
    """Have the first partition end after the second."""
    if partition:
        SECOND.set()
    else:
        SECOND.wait()
    return partition


def waiting(common: bytes, partition: int) -> int:
    GO_ON.wait()
    return partition


def failing(common: bytes, partition: int) -> int:
    if partition == 2:
        raise KeyError("two")
    return partition


class Shared:
    """What partitions share; it counts those that are there."""

    alive: ClassVar[weakref.WeakSet[Shared]] = weakref.WeakSet()

    def __init__(self) -> None:
        Shared.alive.add(self)

    def __setstate__(self, state: Any) -> None:
        Shared.alive.add(self)


def shared_by(common: Shared, partition: int) -> int:
    return id(common)


def test_partitions_share_one_object_which_goes_with_the_results(client: Client) -> None:
    results = ordered_results(client, shared_by, Shared(), iter(range(8)))
    assert len(set(results)) == 1
    deadline = Deadline(20)
    while Shared.alive and not deadline.has_passed:
        client.run(gc.collect)
    assert list(Shared.alive) == []


def test_results_come_in_order_whichever_ends_first(client: Client) -> None:
    assert list(ordered_results(client, second_first, b"", iter([0, 1]))) == [0, 1]


def test_each_partition_gets_what_all_have_in_common(client: Client) -> None:
    assert list(ordered_results(client, joined, b"no. ", iter(range(40)))) == [f"no. {i}" for i in range(40)]


def test_no_partitions_have_no_results(client: Client) -> None:
    assert list(ordered_results(client, joined, b"", iter(()))) == []


def test_partitions_are_taken_as_far_as_the_window_while_nobody_reads(client: Client) -> None:
    taken = itertools.count()
    GO_ON.set()
    results = ordered_results(client, waiting, b"", (0 for _ in taken))
    next(results)
    assert next(taken) <= 1 + 4 * 2
    results.close()
    assert {state.status for state in client.futures.values()} <= {"cancelled"}, "of what is not forgotten yet"


def test_a_failure_comes_after_the_results_before_it_and_cancels_the_rest(client: Client) -> None:
    found = []
    with pytest.raises(KeyError, match="two"):
        found.extend(ordered_results(client, failing, b"", iter(range(100))))
    assert found == [0, 1]
    assert {state.status for state in client.futures.values()} <= {"cancelled"}, "of what is not forgotten yet"


def test_a_failure_of_the_partitions_comes_after_the_results_before_it(client: Client) -> None:
    def partitions() -> Iterator[int]:
        yield from (0, 1)
        raise OSError("the file is gone")

    found = []
    with pytest.raises(OSError, match="the file is gone"):
        found.extend(ordered_results(client, joined, b"", partitions()))
    assert found == ["0", "1"]


def test_a_cluster_whose_workers_are_gone_is_not_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "LOOK_SECS", 0.0)
    monkeypatch.setattr(slots, "NO_WORKERS_SECS", 0.0)
    monkeypatch.setattr(slots, "ask", lambda *given: {})
    with pytest.raises(WaitTimeoutError, match=r"^the Dask cluster did not have any worker within"):
        next(ordered_results(client, joined, b"", iter([1])))


@pytest.mark.parametrize(
    ("reason", "kind", "said"),
    [
        (
            "scheduler-connection-lost",
            RoleFailedError,
            r"^the Dask scheduler at inproc://\S+ failed: the connection to",
        ),
        ("somebody", StoppedError, r"^7 was stopped: its Dask task was cancelled$"),
    ],
)
def test_a_partition_that_is_cancelled(
    client: Client, monkeypatch: pytest.MonkeyPatch, reason: str, kind: type[Exception], said: str
) -> None:
    def cancel(futures: Any, timeout: float) -> None:
        client.futures[futures[0].key].cancel(reason=reason)

    GO_ON.clear()
    monkeypatch.setattr(module, "wait", cancel)
    with pytest.raises(kind, match=said):
        next(ordered_results(client, waiting, b"", iter([7])))
    GO_ON.set()


def test_an_asynchronous_client_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(client), "asynchronous", True)
    with pytest.raises(UsageError, match=r"^client is asynchronous: expected distributed\.Client\(\.\.\.\) without"):
        next(ordered_results(client, joined, b"", iter([7])))
    monkeypatch.undo()
