"""What the heartbeats of a Dask worker say of a role that runs on it; without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from psflow.ps_runtime.cluster.hangs import Heartbeat, RunningIncarnation
from psflow.ps_runtime.cluster.heartbeats import heartbeat_of, pulse_shown
from psflow.ps_runtime.roles.context import Pulse
from psflow.ps_runtime.specs.roles import RoleId

PS, OTHER = (RunningIncarnation(RoleId.parse(f"ps-{i}"), 65536, "tcp://h:1") for i in range(2))


def heartbeat(worker: Any, running: RunningIncarnation) -> Heartbeat:
    """Return what a scheduler would hear now."""
    metrics = {name: metric(worker) for name, metric in worker.metrics.items()}
    return heartbeat_of({"last_seen": 5.0, "metrics": metrics}, "topic", running)


def test_each_role_shows_its_own_pulse_as_long_as_it_runs() -> None:
    worker: Any = SimpleNamespace(metrics={"cpu": lambda worker: 3}, loop=SimpleNamespace(add_callback=lambda f: f()))
    before, pulse = worker.metrics, Pulse()
    with pulse_shown(worker, "topic", PS.role, PS.incarnation, pulse):
        assert heartbeat(worker, PS) == Heartbeat(5.0, None), "it makes no rounds yet"
        with pulse.rounds():
            pulse.beat()
            assert heartbeat(worker, PS) == heartbeat(worker, PS) == Heartbeat(5.0, 1)
            assert heartbeat(worker, OTHER) == Heartbeat(5.0, None)
            assert heartbeat(worker, PS._replace(incarnation=65537)) == Heartbeat(5.0, None)
            with pulse.long_call():
                assert heartbeat(worker, PS) != heartbeat(worker, PS)
            assert heartbeat(worker, PS) == heartbeat(worker, PS)
        assert heartbeat(worker, PS) == Heartbeat(5.0, None)
    assert worker.metrics.keys() == {"cpu"}
    assert before.keys() == {"cpu"}, "the worker may be in the middle of it"
