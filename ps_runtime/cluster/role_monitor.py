"""Monitors what roles do not report themselves: delays, lost Dask workers, and hangs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from distributed import Client

from psflow.ps_runtime.cluster.hangs import RunningIncarnation
from psflow.ps_runtime.cluster.memory_kills import MemoryKills
from psflow.ps_runtime.cluster.presence import LOOK_SECS, Presence
from psflow.ps_runtime.cluster.probe import LOOKS, Probe
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.ps_runtime.specs.roles import Role, RoleId

START_TIMEOUT_SECS = 60.0
"""For a submitted role to report; its process runs already."""
LISTEN_TIMEOUT_SECS = 300.0
"""For a new incarnation of a ps to listen: it may import what a model_fn needs on a busy machine."""
LEAVE_TIMEOUT_SECS = 300.0
"""For a ps or the chief to end in a rollback; it may have a step of the user's code to finish."""
END_TIMEOUT_SECS = 60.0
"""For a worker to run its ``end`` hooks once training is over."""
NO_ROLLBACK_YET = "training rolls back to the last checkpoint only after that"
RESUME = "check its log for what it waits for, then run the same command again"

logger = logging.getLogger(__name__)


class RoleMonitor:
    """Detects lost Dask workers, checks the cluster periodically, and records the state of each role."""

    def __init__(
        self,
        client: Client,
        topic: str,
        supervisor: Supervisor,
        changed: threading.Condition,
        probe_timeout_secs: float,
    ) -> None:
        self._client = client
        self._supervisor = supervisor
        self._changed = changed
        self._presence = Presence(client, look_secs=min(LOOK_SECS, probe_timeout_secs / LOOKS))
        self._memory_kills = MemoryKills(client, self._presence)
        self._probe = Probe(client, topic, probe_timeout_secs, self._record_hang)

    def open(self) -> None:
        """Subscribe to the events of Dask workers, which arrive in a thread of the Dask client."""
        self._memory_kills.open()
        self._client.subscribe_topic("all", self._take_event)

    def look(self) -> None:
        """Record new facts. Does not block.

        Raises WaitTimeoutError if the scheduler is silent for minutes, a ps or the chief does not end in a rollback, or
        a new incarnation of a ps does not start listening.
        """
        with self._changed:
            self._supervisor.lose_late(START_TIMEOUT_SECS)
            if late := self._supervisor.overdue.to_leave(LEAVE_TIMEOUT_SECS):
                raise WaitTimeoutError(_names(late), "end", LEAVE_TIMEOUT_SECS, f"{NO_ROLLBACK_YET}; {RESUME}")
            if silent := self._supervisor.overdue.to_listen(LISTEN_TIMEOUT_SECS):
                raise WaitTimeoutError(_names(silent), "start listening", LISTEN_TIMEOUT_SECS, RESUME)
            abandoned = self._supervisor.abandoned_late(END_TIMEOUT_SECS)
            slots = set(self._supervisor.slots().values())
            incarnations = self._probed()
        for role, slot in abandoned.items():
            logger.warning(
                "%s on the Dask worker %s did not end within %g s after the end of training; the job ends without it, "
                "and loses nothing",
                role,
                slot,
                END_TIMEOUT_SECS,
            )
        missing = self._presence.missing(slots)
        self._lose(missing)
        self._probe.look(incarnations, self._presence.workers)

    def close(self) -> None:
        """Unsubscribe, and wait for no answer."""
        self._presence.close()
        self._probe.close()
        self._client.unsubscribe_topic("all")
        self._memory_kills.close()

    def _take_event(self, stamped: tuple[float, Any]) -> None:
        event = stamped[1]
        if isinstance(event, Mapping) and event.get("action") == "remove-worker":
            self._lose({event["worker"]}, in_order=event["expected"])

    def _lose(self, addresses: set[str], *, in_order: bool = False) -> None:
        """Record that Dask workers are gone, and why, as far as their nannies have reported it."""
        with self._changed:
            why = self._memory_kills.reasons(self._supervisor.slots())
            self._supervisor.lose_slots(addresses, why, in_order=in_order)
            self._changed.notify_all()

    def _probed(self) -> list[RunningIncarnation]:
        """Return the incarnations whose hangs matter: once training is over no role goes on without a worker."""
        incarnations, is_trained = self._supervisor.running(), self._supervisor.is_trained
        return [running for running in incarnations if running.role.role is not Role.WORKER or not is_trained]

    def _record_hang(self, running: RunningIncarnation, reason: str) -> bool:
        with self._changed:
            is_running = running in self._supervisor.running()
            if is_running:
                self._supervisor.hang(running.role, running.incarnation, reason)
            return is_running


def late_start(
    late: Iterable[RoleId], slots: Mapping[RoleId, str], action: str, timeout_secs: float
) -> WaitTimeoutError:
    """Return the error if first incarnations on their `slots` have not done `action` in time."""
    where = ", ".join(sorted({slots[role] for role in late}))
    detail = f"check its Dask worker, {where}: it may hang, or be busy with something else"
    return WaitTimeoutError(_names(sorted(late, key=list(slots).index)), action, timeout_secs, detail)


def _names(roles: Iterable[RoleId]) -> str:
    return ", ".join(map(str, roles))
