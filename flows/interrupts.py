"""SIGINT and SIGTERM while roles run: the first asks for an orderly end, a second one aborts."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupts"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
