"""Defines the scheduler and workers of our own clusters: they serve only the members, and log little.

Dask's own also serve HTTP to anyone who can connect, and no setting turns that off.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from distributed import Nanny, Scheduler, Worker

from psflow.ps_runtime.one_thread import HeldSetting

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
        """Do nothing."""


class ClosedWorker(Worker):
    """A worker without a dashboard."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Do nothing."""


class ClosedNanny(Nanny):
    """A nanny that always ends its process; one that Dask lost track of during the start would delay our exit."""

    async def close(self, *args: Any, **options: Any) -> Any:
        """Close the nanny, as Dask does."""
        process = None if self.process is None else self.process.process
        try:
            return await super().close(*args, **options)
        finally:
            if process is not None and (left := process._process) is not None and left.pid is not None:  # no public way
                left.kill()


@contextmanager
def quiet_logs(name: str = "distributed") -> Iterator[None]:
    """Suppress what Dask, or its part `name`, logs of connections and shutdowns.

    Notes
    -----
    Any number of blocks may overlap, in any threads, and end in any order: the level comes back with the last of them.
    """
    with _quiet.setdefault(name, HeldSetting()).held(lambda: _critical(logging.getLogger(name))):
        yield


_quiet: dict[str, HeldSetting] = {}
"""Levels of loggers, by their names."""


def _critical(logger: logging.Logger) -> AbstractContextManager[None] | None:
    return None if logger.level == logging.CRITICAL else _at_level(logger, logging.CRITICAL)


@contextmanager
def _at_level(logger: logging.Logger, level: int) -> Iterator[None]:
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Keep warnings on the terminal of a process that configures no logging, also while a role captures its log."""
    root, last_resort = logging.getLogger(), logging.lastResort
    if root.handlers or last_resort is None:
        yield
        return
    root.addHandler(last_resort)  # Python uses it only where there is no handler at all
    try:
        yield
    finally:
        root.removeHandler(last_resort)
