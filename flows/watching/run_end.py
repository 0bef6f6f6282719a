"""How an MLflow run ends whose flow does not end well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psflow.flows.stopping.interrupts import InterruptedRunError
from psflow.tasks.tracking.tracker import Tracker

__all__ = ["closed_on_error"]

KILLED_SECS = 4.0
FAILED_SECS = 5.0
"""For MLflow to take what is left; who interrupts does not want to wait."""


@contextmanager
def closed_on_error(tracker: Tracker) -> Iterator[Tracker]:
    """Give `tracker`; an exception in the block ends its run as KILLED if somebody interrupted it, else as FAILED."""
    try:
        yield tracker
    except (InterruptedRunError, KeyboardInterrupt):
        tracker.close("KILLED", timeout_secs=KILLED_SECS)
        raise
    except BaseException:
        tracker.close("FAILED", timeout_secs=FAILED_SECS)
        raise
