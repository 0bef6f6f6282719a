"""Signals and cancellations during a run: the first starts a graceful shutdown, a second signal aborts."""

from __future__ import annotations

import contextvars
import logging
import signal
import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import Any, Self
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.runtime import flow_run

from psflow.ps_runtime.deadline import stop_clock

POLL_SECS = 1.5
JOIN_SECS = 1.0
"""Timeout for a pending request as the block ends; a hanging server may take a minute to answer."""

_log = logging.getLogger(__name__)


class CancellationWatch:
    """Polls the state of the current flow run, and of its parent flow run, during a block.

    Notes
    -----
    Failed requests are repeated. Outside a flow run it does nothing. The end of the block waits for a pending request
    for at most `JOIN_SECS`.
    """

    def __init__(self, on_cancelling: Callable[[], None]) -> None:
        self._on_cancelling = on_cancelling
        self._closed = threading.Event()
        self._ids: list[UUID] = []
        context = contextvars.copy_context()  # holds Prefect's settings, which name the server
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
                except Exception as error:  # training must go on
                    _log.debug("could not read the state of the flow run: %s", error)
                    continue
                if any(state is not None and (state.is_cancelling() or state.is_cancelled()) for state in states):
                    self._on_cancelling()
                    return


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptedRunError(Exception):
    """A signal, or a cancellation in Prefect, which counts as SIGTERM, interrupted the run."""

    def __init__(self, received: signal.Signals, cause: str) -> None:
        super().__init__(received, cause)
        self.received = received
        self.cause = cause

    def __str__(self) -> str:
        return f"ended by {self.cause}"


class AbortedRunError(KeyboardInterrupt):
    """A second signal, which ends the run without waiting; raised anywhere in the main thread."""

    def __init__(self, received: signal.Signals) -> None:
        super().__init__(received)
        self.received = received

    def __str__(self) -> str:
        return f"aborted by a second {self.received.name}"


INTERRUPTIONS = (InterruptedRunError, AbortedRunError)
"""Exceptions that end a flow without a failure."""


class Interrupts:
    """Collects signals and cancellations during a ``with`` block.

    Signals are received in the main thread only, cancellations in Prefect in any thread. An interruption of an inner
    block also counts in the outer one.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._cause = ""
        self._is_signalled = False
        self._watch = CancellationWatch(self._cancel)
        self._previous: dict[signal.Signals, Any] = {}
        self._outer: Interrupts | None = None

    def __enter__(self) -> Self:
        self._outer = _current.get()
        self._token = _current.set(self)
        self._watch.__enter__()
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._take) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for number, previous in self._previous.items():
                signal.signal(number, previous)
            self._watch.__exit__(kind, error, trace)
        finally:  # another signal may interrupt the wait for the watch
            _current.reset(self._token)
            if self._outer is not None and self.received is not None:
                self._outer._note(self.received, self._cause)

    def check(self) -> None:
        """Raise InterruptedRunError after an interruption."""
        if self.received is not None:
            raise InterruptedRunError(self.received, self._cause)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._is_signalled:
            raise AbortedRunError(signal.Signals(number))
        self._is_signalled = True
        self._note(signal.Signals(number), signal.Signals(number).name)

    def _cancel(self) -> None:
        self._note(signal.SIGTERM, "a cancellation in Prefect")

    def _note(self, received: signal.Signals, cause: str) -> None:
        """Keep the first cause: Prefect both marks a run that it started, and sends it a signal."""
        if self.received is None:
            stop_clock.begin(received)
            self._cause = cause
            self.received = received


_current: ContextVar[Interrupts | None] = ContextVar("psflow_interrupts", default=None)
