"""A turn whose owner does not want to wait; without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import cluster_lock
from psflow.ps_runtime.cluster.cluster_lock import STARTING, ClusterLock


def test_who_does_not_wait_until_a_turn_is_given_back_has_dask_refresh_it_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(lock: ClusterLock) -> None:
        raise KeyboardInterrupt

    stopped: list[str] = []
    lock = SimpleNamespace(refresh_callback=SimpleNamespace(stop=lambda: stopped.append("refreshing")))
    monkeypatch.setattr(cluster_lock, "Lock", lambda name, scheduler_rpc, loop: lock)
    monkeypatch.setattr(ClusterLock, "give_back", interrupt)
    client: Any = SimpleNamespace(
        scheduler=SimpleNamespace(), loop=SimpleNamespace(add_callback=lambda callback: callback())
    )
    with pytest.raises(KeyboardInterrupt), ClusterLock(client, STARTING):
        pass
    assert stopped == ["refreshing"]
