"""The events of the scheduler by which the tasks of calls, and whoever waits for them, hear of each other."""

from __future__ import annotations

from collections.abc import Callable

from distributed import Client, Worker

from psflow.ps_runtime.cluster.cluster_event import ClusterEvent
from psflow.ps_runtime.specs.roles import RoleId

OPEN = "open"
"""As long as somebody waits for the tasks."""


def running(role: RoleId) -> str:
    """Return the name of what is set from before a task looks at other events until after its last."""
    return f"{role}-running"


def started(role: RoleId) -> str:
    """Return the name of what is set once a task has begun to call its function."""
    return f"{role}-started"


def returned(role: RoleId) -> str:
    """Return the name of what is set once its function has returned."""
    return f"{role}-returned"


def ended(role: RoleId) -> str:
    """Return the name of what is set once it has called its function, whatever came of that."""
    return f"{role}-ended"


def event_name(topic: str, name: str) -> str:
    """Return the name of an event among those of all calls of a cluster; `topic` is that of its calls."""
    return f"{topic}-{name}"


def call_event(node: Client | Worker, topic: str, check: Callable[[], None], name: str) -> ClusterEvent:
    """Return the event of a name."""
    return ClusterEvent(node, event_name(topic, name), check)
