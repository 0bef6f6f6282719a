"""Puts the pulse of a role into the heartbeats of its Dask worker, and decides which roles are silent for too long.

The decision is a state machine without a clock and without Dask. Only two heartbeats of one scheduler are compared with
each other. So no role counts as silent if the scheduler answers late, if the owner was stopped itself, or if the clocks
of a machine jump.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from distributed import Worker

from psflow.ps_runtime.cluster.incarnations import Member
from psflow.ps_runtime.cluster.processor_use import Action
from psflow.ps_runtime.roles.context import Pulse
from psflow.ps_runtime.specs.roles import RoleId


class Heartbeat(NamedTuple):
    """The last heartbeat of a Dask worker, as far as it concerns one incarnation."""

    at: float
    pulse: int | None


class Hang(NamedTuple):
    """An incarnation that has been silent for too long."""

    member: Member
    what: Action
    """The action that it did not do."""


@dataclass(slots=True)
class _Silent:
    """An incarnation, and for how many seconds it has been silent."""

    last: Heartbeat
    process_secs: float = 0.0
    thread_secs: float = 0.0

    def take(self, heartbeat: Heartbeat, secs: float) -> None:
        """Record the newest heartbeat, `secs` after the last look."""
        has_news = heartbeat.at != self.last.at
        self.process_secs = 0.0 if has_news else self.process_secs + secs
        if heartbeat.pulse is None or heartbeat.pulse != self.last.pulse:
            self.thread_secs = 0.0
        elif has_news:  # otherwise the state of the thread is unknown
            self.thread_secs += secs
        self.last = heartbeat

    def action(self, timeout_secs: float) -> Action | None:
        """Return what the incarnation has not done for too long."""
        if self.process_secs >= timeout_secs:
            return "answer"
        return "serve" if self.thread_secs >= timeout_secs else None


class HeartbeatTimeouts:
    """Decides which incarnations have been silent for too long."""

    def __init__(self) -> None:
        self._silent: dict[Member, _Silent] = {}

    def look(self, secs: float, heartbeats: Mapping[Member, Heartbeat], timeout_secs: float) -> list[Hang]:
        """Record the newest heartbeats; return the incarnations that hang, whose time starts anew."""
        self._silent = {member: silent for member, silent in self._silent.items() if member in heartbeats}
        hangs = []
        for member, heartbeat in heartbeats.items():
            silent = self._silent.get(member)
            if silent is None:
                self._silent[member] = _Silent(heartbeat)
                continue
            silent.take(heartbeat, secs)
            if (what := silent.action(timeout_secs)) is not None:
                hangs.append(Hang(member, what))
                del self._silent[member]
        return hangs


def heartbeat_of(worker: Mapping[str, Any], topic: str, member: Member) -> Heartbeat:
    """Return the last heartbeat of a Dask worker for an incarnation on it."""
    return Heartbeat(worker["last_seen"], worker["metrics"].get(_metric(topic, member.role, member.incarnation)))


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
