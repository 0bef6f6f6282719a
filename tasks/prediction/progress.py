"""Reports the progress of a prediction on the terminal and in the Prefect UI."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prefect import get_run_logger
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.prediction.part_facts import PartFacts
from psflow.tasks.prediction.partitions import Partition

EVERY_SECS = 2.0


class PredictionProgress:
    """Counts predicted records, and reports them every other second."""

    def __init__(self, left: Sequence[Partition], clock: Callable[[], float] = time.monotonic) -> None:
        self.rows = self.rejects = 0
        self._num_records, self._num_parts = sum(part.num_records for part in left), len(left)
        self._clock, self._began = clock, clock()
        self._parts = self._told = 0
        self._next = self._began + EVERY_SECS
        self._logger = get_run_logger()
        self._artifact: Any = None
        self._has_failed = False
        self._show(0.0)

    @property
    def is_done(self) -> bool:
        """Whether all partitions have ended."""
        return self._parts == self._num_parts

    def add(self, facts: Iterable[PartFacts]) -> None:
        """Add finished partitions."""
        for one in facts:
            self.rows += one.rows
            self.rejects += one.rejects
            self._parts += 1

    def report(self) -> None:
        """Report new progress if it is due, or at the end."""
        if self._parts == self._told or (not self.is_done and self._clock() < self._next):
            return
        self._next, self._told = self._clock() + EVERY_SECS, self._parts
        self._logger.info("%s", self.line())
        share = 100.0 * (self.rows + self.rejects) / self._num_records
        self._show(share)

    def _show(self, percent: float) -> None:
        """Show it in the Prefect UI; an unavailable server is logged once, and the prediction goes on."""
        try:
            if self._artifact is None:
                self._artifact = create_progress_artifact(percent, description=self.line())
            else:
                update_progress_artifact(self._artifact, percent, description=self.line())
        except Exception as error:  # the prediction must go on
            if not self._has_failed:
                self._logger.warning("could not show the progress in Prefect: %s", without_secrets(str(error)))
            self._has_failed = True

    def line(self) -> str:
        """Return rows, rejects, rate and remaining time for display."""
        done, secs = self.rows + self.rejects, self._clock() - self._began
        line = f"predicted {done:,} of {self._num_records:,} rows, {self._parts:,} of {self._num_parts:,} partitions"
        if self.rejects:
            line += f", {self.rejects:,} rejected"
        if not done or not secs:
            return line
        rate = done / secs
        left = (self._num_records - done) / rate
        return f"{line}, {rate:,.0f} rows/s" + (f", {shown_secs(left)} left" if done < self._num_records else "")


def shown_secs(secs: float) -> str:
    """Format a duration for display.

    Examples
    --------
    >>> shown_secs(7.2), shown_secs(312), shown_secs(7261)
    ('7 s', '5 min 12 s', '2 h 1 min')
    """
    whole = round(secs)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
