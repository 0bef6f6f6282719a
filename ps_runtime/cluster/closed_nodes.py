"""The scheduler and the workers of a local cluster: they listen to members of the cluster, and to nobody else.

Dask's own serve HTTP beside that, to whoever can connect, and no setting keeps them from it.
"""

from __future__ import annotations

from typing import Any

from distributed import Scheduler, Worker

__all__ = ["ClosedScheduler", "ClosedWorker"]


class ClosedScheduler(Scheduler):
    """A scheduler without a dashboard."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Start none."""


class ClosedWorker(Worker):
    """A worker without a dashboard."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Start none."""
