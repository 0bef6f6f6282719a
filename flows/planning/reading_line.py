"""A bar on the terminal, or lines in the log, for what takes more than a few seconds of reading input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

from prefect.logging import get_logger
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from psflow.ps_runtime.data.reading_progress import CallProgress, LoggedProgress, ScanProgress, watched_by

__all__ = ["ReadingBar", "shown_reading"]

SHOWN_AFTER_SECS = 2.0


class ReadingBar:
    """Shows the scan, or the call of a function of the user, that is under way, once it has taken two seconds."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: ScanProgress | CallProgress) -> None:
        """Show how far a scan is, and that a call runs; what has ended is shown no more."""
        if progress.secs < SHOWN_AFTER_SECS:
            return
        match progress:
            case ScanProgress(where=where, done_bytes=done, num_bytes=num_bytes):
                self._show(f"reading {where}", progress.has_ended, done, num_bytes)
            case CallProgress(where=where, has_ended=has_ended):
                self._show(f"{where} is running", has_ended)
            case _:
                assert_never(progress)

    def _show(self, what: str, has_ended: bool, done: int = 0, total: int | None = None) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done, visible=not has_ended)


@contextmanager
def shown_reading() -> Iterator[None]:
    """Show what the block reads and calls, if it takes long; where stderr is no terminal, in the log."""
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        with watched_by(LoggedProgress(get_logger("psflow").info)):
            yield
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar, watched_by(ReadingBar(bar)):
        yield
