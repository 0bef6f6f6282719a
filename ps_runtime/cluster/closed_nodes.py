"""The scheduler and the workers of a cluster of our own: they listen to its members, to nobody else, and say little.

Dask's own serve HTTP beside that, to whoever can connect, and no setting keeps them from it.
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
        """Start none."""


class ClosedWorker(Worker):
    """A worker without a dashboard."""

    def start_http_server(self, *args: Any, **options: Any) -> None:
        """Start none."""


class ClosedNanny(Nanny):
    """A nanny whose process ends with it, also one that Dask lost sight of as it started; it would hold up our exit."""

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
    """Keep what Dask, or the part `name` of it, says of comings and goings out of the log.

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
    """Have warnings stay in the terminal of a process that configures no logging, also while a role takes its log."""
    root, last_resort = logging.getLogger(), logging.lastResort
    if root.handlers or last_resort is None:
        yield
        return
    root.addHandler(last_resort)  # Python itself uses it only where there is no handler at all
    try:
        yield
    finally:
        root.removeHandler(last_resort)
