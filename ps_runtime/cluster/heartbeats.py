"""Reads and writes the pulse of a role in the heartbeats of its Dask worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from distributed import Worker

from psflow.ps_runtime.cluster.hangs import Heartbeat, RunningIncarnation
from psflow.ps_runtime.roles.context import Pulse
from psflow.ps_runtime.specs.roles import RoleId


def heartbeat_of(worker: Mapping[str, Any], topic: str, running: RunningIncarnation) -> Heartbeat:
    """Return the last heartbeat of a Dask worker for an incarnation on it."""
    return Heartbeat(worker["last_seen"], worker["metrics"].get(_metric(topic, running.role, running.incarnation)))


@contextmanager
def pulse_shown(worker: Worker, topic: str, role: RoleId, incarnation: int, pulse: Pulse) -> Iterator[None]:
    """Include the pulse of a role in the heartbeats of a Dask worker while the block lasts."""
    name = _metric(topic, role, incarnation)

    def show() -> None:  # in a new dict: the worker may be reading the present one
        worker.metrics = {**worker.metrics, name: lambda worker: pulse.read()}

    def hide() -> None:
        worker.metrics = {key: metric for key, metric in worker.metrics.items() if key != name}

    worker.loop.add_callback(show)
    try:
        yield
    finally:
        worker.loop.add_callback(hide)


def _metric(topic: str, role: RoleId, incarnation: int) -> str:
    return f"{topic}-{role}-{incarnation}-pulse"
