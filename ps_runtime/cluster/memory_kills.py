"""Collects the Dask workers that their nannies kill for using too much memory, and how much it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dask.utils import format_bytes
from distributed import Client

from psflow.ps_runtime.cluster.connecting import is_own_cluster
from psflow.ps_runtime.cluster.presence import Presence
from psflow.ps_runtime.specs.roles import Role, RoleId

TOPIC = "worker-restart-memory"
"""Topic of Dask's events: a nanny reports to the scheduler, then ends its process."""
END_SECS = 30.0
"""For the process to end. A process that ignores SIGTERM, as those of our own clusters do, continues if it uses less
memory at the next look of its nanny, a tenth of a second later; if it ends after that, the cause is another one.
"""


class _Kill(NamedTuple):
    sentence: str
    at: float


class MemoryKills:
    """Collects these Dask workers, from `open` to `close`."""

    def __init__(self, client: Client, presence: Presence, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._presence = presence
        self._clock = clock
        self._kills: dict[str, _Kill] = {}

    def open(self) -> None:
        """Subscribe to the events."""
        self._client.subscribe_topic(TOPIC, self._take)

    def close(self) -> None:
        """Unsubscribe."""
        if self._client.status == "running":  # otherwise there is no scheduler
            self._client.unsubscribe_topic(TOPIC)

    def reasons(self, slots: Mapping[RoleId, str]) -> dict[RoleId, str]:
        """Return, for roles whose Dask workers were killed so, why they are lost and what to do."""
        since = self._clock() - END_SECS
        killed = {role: kill for role, slot in slots.items() if (kill := self._kills.get(slot)) and kill.at >= since}
        return {role: f"{kill.sentence}; {self._advice(role)}" for role, kill in killed.items()}

    def _take(self, stamped: tuple[float, Any]) -> None:
        slot, rss_bytes = stamped[1]["worker"], stamped[1]["rss"]
        known = self._presence.workers.get(slot)
        limit = "" if known is None else f" of its limit of {format_bytes(known['memory_limit'])}"
        what = f"the nanny of its Dask worker {slot} killed it at {format_bytes(rss_bytes)}{limit}"
        self._kills[slot] = _Kill(what, self._clock())

    def _advice(self, role: RoleId) -> str:
        is_ps = role.role is Role.PS
        if is_own_cluster(self._client):
            less = "train on a cluster" if is_ps else "make batches smaller"
            return f"the processes share the memory of this machine equally: start fewer workers, or {less}"
        return f"raise memory_limit, or {'start more ps' if is_ps else 'make batches smaller'}"
