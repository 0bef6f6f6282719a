"""Starts the Prefect server of a command while this process imports Prefect: both take more than a second.

Nothing here may import Prefect, MLflow or Dask.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from psflow.ps_runtime.config.environment import prefect_api_url
from psflow.tasks.prefect_server.local_server import LocalPrefectServer
from psflow.tasks.started_servers import found


class CollectorRest:
    """Disables the garbage collector until `end`.

    Imports create little garbage, and collections take a sixth of their time.
    """

    def __init__(self) -> None:
        self._was_at_work = gc.isenabled()
        gc.disable()

    def end(self) -> None:
        """Enable it again, if it was enabled before. Idempotent."""
        if self._was_at_work:
            gc.enable()


@dataclass(frozen=True)
class HeadStart:
    """Work in progress: the server, and the paused garbage collector."""

    began_at: float
    server: LocalPrefectServer | None
    rest: CollectorRest


_current: ContextVar[HeadStart | None] = ContextVar("psflow_head_start", default=None)


@contextmanager
def head_start(began_at: float | None = None) -> Iterator[HeadStart]:
    """Start the server for a flow in this process, and end it with the block. A nested call gives the outer one."""
    current = _current.get()
    if current is not None:
        yield current
        return
    with ExitStack() as stack:
        rest = CollectorRest()
        stack.callback(rest.end)
        is_there = prefect_api_url() or found().prefect_api_url
        server = None if is_there else stack.enter_context(closing(LocalPrefectServer()))
        begun = HeadStart(time.monotonic() if began_at is None else began_at, server, rest)
        token = _current.set(begun)
        try:
            yield begun
        finally:
            _current.reset(token)
