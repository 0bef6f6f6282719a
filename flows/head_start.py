"""Starts the Prefect server of a command while this process reads its configuration and imports Prefect.

Nothing here may import Prefect, MLflow or Dask.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from psflow.ps_runtime.collector import collector_at_rest
from psflow.ps_runtime.config.environment import prefect_api_url, prepare_environment
from psflow.tasks.prefect_server.local_server import LocalPrefectServer
from psflow.tasks.started_servers import found


@dataclass(frozen=True)
class HeadStart:
    """Work in progress: the server, and the rest of the garbage collector, until it is closed."""

    began_at: float
    server: LocalPrefectServer | None
    rest: ExitStack


_current: ContextVar[HeadStart | None] = ContextVar("psflow_head_start", default=None)


@contextmanager
def head_start(began_at: float | None = None) -> Iterator[HeadStart]:
    """Start the server for a flow in this process, and end it with the block. A nested call gives the outer one."""
    current = _current.get()
    if current is not None:
        yield current
        return
    prepare_environment()
    with ExitStack() as stack:
        rest = stack.enter_context(ExitStack())
        rest.enter_context(collector_at_rest())
        is_there = prefect_api_url() or found().prefect_api_url
        server = None if is_there else stack.enter_context(closing(LocalPrefectServer()))
        begun = HeadStart(time.monotonic() if began_at is None else began_at, server, rest)
        token = _current.set(begun)
        try:
            yield begun
        finally:
            _current.reset(token)
