"""A cluster of our own has as many workers as it wants, also once nannies have given up."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Status

from psflow.ps_runtime.cluster import connecting
from psflow.ps_runtime.cluster import worker_keeping as module
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.worker_keeping import replace_closed, want_no_workers


class Cluster:
    """What is looked at of a SpecCluster of two, which opens what is missing, or fails to."""

    def __init__(self, *states: Status, fails: bool = False) -> None:
        self.workers = {name: SimpleNamespace(status=status) for name, status in enumerate(states)}
        self.worker_spec: dict[int, dict[str, Any]] = {0: {}, 1: {}}
        self.opened: list[int] = []
        self.fails = fails

    async def _correct_state(self) -> None:
        for name in self.worker_spec.keys() - self.workers.keys():
            self.opened.append(name)
            self.workers[name] = SimpleNamespace(status=Status.failed if self.fails else Status.running)
        if self.fails:
            raise RuntimeError("Nanny failed to start.") from ValueError("name taken, 1")

    def look(self) -> list[int]:
        self.opened.clear()
        asyncio.run(replace_closed(self))  # type: ignore[arg-type]
        return sorted(self.opened)


@pytest.mark.parametrize(
    ("states", "opened"),
    [
        ((Status.running, Status.running), []),
        ((Status.running, Status.starting), []),  # it starts its process again by itself
        ((Status.running, Status.closing), []),
        ((Status.running, Status.closed), [1]),
        ((Status.failed, Status.closed), [0, 1]),
        ((Status.running,), [1]),  # Dask has let it go
    ],
)
def test_a_nanny_that_has_given_up_is_replaced_once(states: tuple[Status, ...], opened: list[int]) -> None:
    cluster = Cluster(*states)
    assert cluster.look() == opened
    assert cluster.look() == []


def test_what_does_not_start_is_told_of_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(Status.running, Status.closed, fails=True)
    with caplog.at_level(logging.WARNING, module.__name__):
        assert cluster.look() == cluster.look() == [1]
    why = "RuntimeError: Nanny failed to start., caused by ValueError: name taken, 1"
    assert caplog.messages == [f"a worker process did not start, psflow will try again: {why}"] * 2


def test_a_cluster_that_is_killed_replaces_nobody() -> None:
    cluster = Cluster(Status.closed, Status.closed)
    want_no_workers(cluster)  # type: ignore[arg-type]
    assert cluster.look() == []


@pytest.mark.cluster
def test_a_cluster_whose_nannies_have_all_closed_has_new_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECS", 0.05)
    with open_cluster(None, 2, 300) as client:
        [cluster] = connecting._open
        before = set(client.nthreads())

        async def close_all() -> None:
            await asyncio.gather(*(nanny.close() for nanny in list(cluster.workers.values())))

        cluster.sync(close_all)
        client.wait_for_workers(2, timeout=300)
        assert not before & set(client.nthreads())
