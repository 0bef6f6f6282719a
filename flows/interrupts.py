"""SIGINT and SIGTERM while roles run: the first asks for an orderly end, a second one aborts."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["InterruptedRunError", "Interrupts"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptedRunError(Exception):
    """A signal asked for the end."""

    def __init__(self, received: signal.Signals) -> None:
        super().__init__(received)
        self.received = received

    def __str__(self) -> str:
        return f"ended by {self.received.name}"


class Interrupts:
    """Takes over the signals for a ``with`` block, in the main thread; elsewhere it does nothing.

    Attributes
    ----------
    received : signal.Signals or None
        The first one.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._take) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def check(self) -> None:
        """Raise InterruptedRunError if a signal has come."""
        if self.received is not None:
            raise InterruptedRunError(self.received)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
