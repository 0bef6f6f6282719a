"""A bar on the terminal, or lines in the log, for scans of record files that take more than a few seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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

from psflow.ps_runtime.data.scan_progress import LoggedScans, ScanProgress, told_of_scans

__all__ = ["ScanBar", "shown_scans"]

SHOWN_AFTER_SECS = 2.0


class ScanBar:
    """Shows the scan that is under way, once it has taken two seconds.

    Parameters
    ----------
    bar : rich.progress.Progress
        Started by who made it.
    """

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: ScanProgress) -> None:
        """Show how far the scan is; one that has ended is shown no more."""
        if progress.secs < SHOWN_AFTER_SECS:
            return
        if progress.where not in self._tasks:
            self._tasks[progress.where] = self._bar.add_task(f"reading {progress.where}", total=progress.num_bytes)
        is_done = progress.done_bytes >= progress.num_bytes
        self._bar.update(self._tasks[progress.where], completed=progress.done_bytes, visible=not is_done)


@contextmanager
def shown_scans() -> Iterator[None]:
    """Show how far the scans are that the block makes; where stderr is no terminal, in the log."""
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        with told_of_scans(LoggedScans(get_logger("psflow").info)):
            yield
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar, told_of_scans(ScanBar(bar)):
        yield
