"""Hearing of a cancellation in Prefect from inside the run: nobody tells a process that Prefect did not start."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

__all__ = ["CancellationWatch"]

POLL_SECS = 1.5
JOIN_SECS = 1.0
"""For a question that is under way as the block ends; a server that hangs may take a minute to answer."""

_log = logging.getLogger(__name__)


class CancellationWatch:
    """Looks at the state of the current flow run, and of the one that it is a part of, for the time of a block.

    Notes
    -----
    A server that does not answer is asked again. Outside a flow run it does nothing. The end of the block waits for
    `JOIN_SECS` at most for the answer to a question that is under way.
    """

    def __init__(self, on_cancelling: Callable[[], None]) -> None:
        self._on_cancelling = on_cancelling
        self._closed = threading.Event()
        self._ids: list[UUID] = []
        context = contextvars.copy_context()  # of Prefect's settings: else it would look in another server
        self._thread = threading.Thread(target=context.run, args=[self._watch], name="psflow-cancellation", daemon=True)

    def __enter__(self) -> Self:
        if flow_run.id is not None:
            self._ids = [UUID(text) for text in dict.fromkeys((flow_run.id, flow_run.root_flow_run_id))]
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        if self._ids:
            self._thread.join(JOIN_SECS)

    def _watch(self) -> None:
        with get_client(sync_client=True) as client:
            while not self._closed.wait(POLL_SECS):
                try:
                    states = [client.read_flow_run(run_id).state for run_id in self._ids]
                except Exception as error:  # whatever the server has: training goes on
                    _log.debug("the state of the flow run could not be read: %s", error)
                    continue
                if any(state is not None and (state.is_cancelling() or state.is_cancelled()) for state in states):
                    self._on_cancelling()
                    return
