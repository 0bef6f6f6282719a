"""Futures in batches as they complete, and a cluster without workers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from psflow.ps_runtime.cluster import slots
from psflow.ps_runtime.errors import RoleFailedError, WaitTimeoutError
from psflow.tasks.completed_futures import completed_batches
from tests.leak_guard import no_leaks

pytestmark = pytest.mark.cluster(shared=True)

GO_ON = threading.Event()
"""The worker is a thread of this process. An Event of Dask has it open a client, which may outlive a short test."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with (
        no_leaks(),
        dask.config.set({"temporary-directory": str(tmp_path)}),
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
    ):
        yield cluster


@pytest.fixture(autouse=True)
def _waiting() -> Iterator[None]:
    """Have tasks that wait do so until the test ends, or lets them go on."""
    GO_ON.clear()
    yield
    GO_ON.set()


def wait() -> None:
    GO_ON.wait()


def fail() -> None:
    raise ValueError("on purpose")


def test_each_future_comes_once_however_it_has_ended(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        blocked, cancelled = client.submit(wait), client.submit(int, "1")
        futures = [blocked, cancelled, client.submit(fail)]
        seen: list[Any] = []
        for batch in completed_batches(client, futures):
            if not seen and not batch:  # the thread is taken, so nothing has completed
                cancelled.cancel()
                GO_ON.set()
            seen += batch
    assert sorted(future.key for future in seen) == sorted(future.key for future in futures)


def test_further_futures_come_while_others_complete(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        waiting = [[client.submit(int, text, pure=False)] for text in "12"]
        first = client.submit(int, "0", pure=False)
        seen: list[int] = []

        def more() -> list[Any]:
            return waiting.pop(0) if waiting and len(seen) == 3 - len(waiting) else []

        for batch in completed_batches(client, [first], more):
            seen += [future.result() for future in batch]
    assert seen == [0, 1, 2]


def test_a_cluster_whose_workers_are_gone_is_not_waited_for(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "LOOK_SECS", 0.0)
    monkeypatch.setattr(slots, "NO_WORKERS_SECS", 0.0)
    with Client(cluster) as client:
        client.retire_workers(list(client.nthreads()), close_workers=True)
        with pytest.raises(WaitTimeoutError, match=r"^the Dask cluster did not have any worker within"):
            list(completed_batches(client, [client.submit(int, "1")]))


def test_a_scheduler_that_is_gone_is_named(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        future = client.submit(wait)
        client.futures[future.key].cancel(reason="scheduler-connection-lost")
        with pytest.raises(RoleFailedError, match=r"^the Dask scheduler at inproc://\S+ failed: the connection to it"):
            list(completed_batches(client, [future]))
        GO_ON.set()
