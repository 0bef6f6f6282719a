"""The Prefect server of a command, started before this process has imported Prefect: both take more than a second.

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
    """The garbage collector rests from now until `end`.

    Imports make much that stays and little garbage, and looking for it takes a sixth of their time.
    """

    def __init__(self) -> None:
        self._was_at_work = gc.isenabled()
        gc.disable()

    def end(self) -> None:
        """Let it work again, if it did before. Idempotent."""
        if self._was_at_work:
            gc.enable()


@dataclass(frozen=True)
class HeadStart:
    """What is under way."""

    began_at: float
    server: LocalPrefectServer | None
    rest: CollectorRest


_current: ContextVar[HeadStart | None] = ContextVar("psflow_head_start", default=None)


@contextmanager
def head_start(began_at: float | None = None) -> Iterator[HeadStart]:
    """Start what a flow in this process will need, and end it with the block. Within a head start: give that one."""
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
