"""What the chief hears of a process that finds that it cannot join, where it does not answer at first."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster import role_worker
from psflow.ps_runtime.cluster.chief_process import open_manual_cluster
from psflow.ps_runtime.cluster.worker_process import OwnProgram, join_manual_cluster
from psflow.ps_runtime.errors import ConfigError, UsageError
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses
from psflow.ps_runtime.specs.roles import RoleId
from tests.free_ports import free_address
from tests.limits import HANG_SECS


@pytest.mark.cluster
def test_a_refusal_that_does_not_reach_the_chief_is_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, attempts = ClusterAddresses(free_address(), ps=(free_address(),)), list[str]()

    def ignore(event: object) -> None:
        pass

    monkeypatch.setattr(role_worker, "REFUSAL_SECS", 0.0)
    with open_manual_cluster(cluster, str(tmp_path), {"max_steps": "40"}, evaluator=False, on_event=ignore) as led:
        scheduler: Any = led.client.cluster.scheduler
        note = scheduler.note_refusal

        def note_at_the_third_attempt(name: str, faults: list[str]) -> None:
            attempts.append(name)
            if len(attempts) < 3:
                raise OSError("Connection reset by peer")  # as where the chief computes for seconds
            note(name, faults)

        scheduler.handlers["note_refusal"] = note_at_the_third_attempt
        with pytest.raises(ConfigError, match="max_steps is 41, but 40"):
            join_manual_cluster(
                cluster, RoleId.parse("ps-0"), str(tmp_path), OwnProgram({"max_steps": "41"}), ignore, HANG_SECS
            )
        with pytest.raises(UsageError, match=r"^ps-0 does not join: max_steps is 41, but 40"):
            led.await_processes(HANG_SECS, never_stop)
    assert attempts == ["ps-0"] * 3


@pytest.mark.cluster
def test_who_would_listen_in_the_place_of_another_hears_that_its_cluster_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_worker, "REFUSAL_SECS", 0.0)
    first, second, ps = free_address(), free_address(), free_address()
    cluster, role = ClusterAddresses(free_address(), (first, second), (ps,)), RoleId.parse("worker-1")
    swapped = ClusterAddresses(cluster.chief, (second, first), cluster.ps)
    host, port = first.rsplit(":", 1)
    with (
        open_manual_cluster(cluster, str(tmp_path), {}, evaluator=False, on_event=lambda event: None) as led,
        socket.create_server((host, int(port))),
    ):
        words = r"cluster\.worker is .* but .* for the chief at .*; give all processes the same"
        with pytest.raises(ConfigError, match=f"^{words}$"):
            join_manual_cluster(swapped, role, str(tmp_path), OwnProgram({}), lambda event: None, HANG_SECS)
        with pytest.raises(UsageError, match=f"^worker-1 does not join: {words}$"):
            led.await_processes(HANG_SECS, never_stop)
