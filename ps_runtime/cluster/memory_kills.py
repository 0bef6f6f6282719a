"""Dask workers that their nannies kill because they take too much memory: who, and how much it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dask.utils import format_bytes
from distributed import Client

from psflow.ps_runtime.cluster.connecting import is_own_cluster
from psflow.ps_runtime.specs.roles import Role, RoleId

__all__ = ["MemoryKills"]

TOPIC = "worker-restart-memory"
"""Of Dask's events: a nanny tells the scheduler, then it has the process end."""
END_SECS = 30.0
"""For the process to end. One that ignores SIGTERM, as those of a cluster of our own do, goes on if it takes less
memory by the next look of its nanny, a tenth of a second later; what ends it after that is something else."""


class _Kill(NamedTuple):
    rss_bytes: int
    at: float


class MemoryKills:
    """Hears of these Dask workers, from `open` to `close`.

    Parameters
    ----------
    client : Client
        Of the cluster.
    clock : callable, optional
        In seconds.
    """

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._kills: dict[str, _Kill] = {}

    def open(self) -> None:
        """Begin to hear of them."""
        self._client.subscribe_topic(TOPIC, self._take)

    def close(self) -> None:
        """Hear of them no more."""
        self._client.unsubscribe_topic(TOPIC)

    def reasons(self, slots: Mapping[RoleId, str], workers: Mapping[str, Mapping[str, Any]]) -> dict[RoleId, str]:
        """Return why roles are lost if their Dask workers go now, and what to do: those that are killed so.

        Parameters
        ----------
        slots : mapping of RoleId to str
            The Dask workers of roles.
        workers : mapping of str to mapping
            Dask workers by address, as the scheduler has described them.
        """
        is_own = is_own_cluster(self._client)
        since = self._clock() - END_SECS
        killed = {role: kill for role, slot in slots.items() if (kill := self._kills.get(slot)) and kill.at >= since}
        return {
            role: f"{_sentence(slots[role], kill.rss_bytes, workers)}; {_advice(role, is_own=is_own)}"
            for role, kill in killed.items()
        }

    def _take(self, stamped: tuple[float, Any]) -> None:
        event = stamped[1]
        self._kills[event["worker"]] = _Kill(event["rss"], self._clock())


def _sentence(slot: str, rss_bytes: int, workers: Mapping[str, Mapping[str, Any]]) -> str:
    limit = f" of its limit of {format_bytes(workers[slot]['memory_limit'])}" if slot in workers else ""
    return f"the nanny of its Dask worker {slot} killed it at {format_bytes(rss_bytes)}{limit}"


def _advice(role: RoleId, *, is_own: bool) -> str:
    is_ps = role.role is Role.PS
    if is_own:
        less = "train on a cluster" if is_ps else "make batches smaller"
        return f"the processes share the memory of this machine equally: start fewer workers, or {less}"
    return f"raise memory_limit, or {'start more ps' if is_ps else 'make batches smaller'}"
