"""A line at the bottom of a terminal that changes in place, below whatever is logged meanwhile."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from prefect.logging.handlers import PrefectConsoleHandler
from rich.console import Console
from rich.live import Live
from rich.text import Text

__all__ = ["TerminalLine", "not_on_terminals"]

ONLY_ELSEWHERE = "psflow_not_on_terminals"

not_on_terminals = {ONLY_ELSEWHERE: True}
"""As `extra` of a log record: a terminal that has the line does not show it, everybody else does."""


class TerminalLine:
    """The line, for the time of a ``with`` block; where stderr is no terminal it does nothing.

    Notes
    -----
    It is drawn on the console of Prefect's own log handler: that puts what it logs above the line, and so does what
    this process writes to stdout and stderr. What other processes write to the terminal may tear it, once.
    """

    def __init__(self) -> None:
        handler = _console_handler()
        console = Console(stderr=True) if handler is None else handler.console
        self._handler = handler
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            if self._handler is not None:
                self._handler.addFilter(_is_for_terminals)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            if self._handler is not None:
                self._handler.removeFilter(_is_for_terminals)

    @property
    def is_shown(self) -> bool:
        """Whether there is a terminal that shows it."""
        return self._live is not None

    def show(self, line: str) -> None:
        """Replace the line."""
        if self._live is not None:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)


def _console_handler() -> PrefectConsoleHandler | None:
    return next((h for h in logging.getLogger().handlers if isinstance(h, PrefectConsoleHandler)), None)


def _is_for_terminals(record: logging.LogRecord) -> bool:
    return not getattr(record, ONLY_ELSEWHERE, False)
