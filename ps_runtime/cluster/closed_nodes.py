"""The scheduler and the workers of a cluster of our own: they listen to its members, to nobody else, and say little.

Dask's own serve HTTP beside that, to whoever can connect, and no setting keeps them from it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Scheduler, Worker

__all__ = ["QUIET", "ClosedScheduler", "ClosedWorker", "quiet_logs"]

QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
}
"""An idle LocalCluster of four takes a fifth of a core with the defaults, a twentieth with these."""


class ClosedScheduler(Scheduler):
    """A scheduler without a dashboard."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Start none."""


class ClosedWorker(Worker):
    """A worker without a dashboard."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Start none."""


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Keep what a cluster of our own says of its comings and goings out of the log."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
