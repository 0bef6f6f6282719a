"""Names the scheduler events that connect the tasks of calls with their waiting owner."""

from __future__ import annotations

from collections.abc import Callable

from distributed import Client, Worker

from psflow.ps_runtime.cluster.cluster_event import ClusterEvent
from psflow.ps_runtime.specs.roles import RoleId

OPEN = "open"
"""As long as the owner waits for the tasks."""


def running(role: RoleId) -> str:
    """Return the name of the event that is set from before a task first looks at other events until after its last."""
    return f"{role}-running"


def started(role: RoleId) -> str:
    """Return the name of the event that is set once a task has begun to call its function."""
    return f"{role}-started"


def returned(role: RoleId) -> str:
    """Return the name of the event that is set once the function has returned."""
    return f"{role}-returned"


def ended(role: RoleId) -> str:
    """Return the name of the event that is set once the function has ended, with or without an error."""
    return f"{role}-ended"


def event_name(topic: str, name: str) -> str:
    """Return the full name of an event; `topic` is that of all calls of one owner."""
    return f"{topic}-{name}"


def call_event(node: Client | Worker, topic: str, check: Callable[[], None], name: str) -> ClusterEvent:
    """Return the event of a name."""
    return ClusterEvent(node, event_name(topic, name), check)
