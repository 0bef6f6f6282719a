"""Calls `on_event` for the events of roles, without blocking any role, and without events for its own logging."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from psflow.ps_runtime.roles.events import Event

OnEvent = Callable[[Event], object]

HEAR_SECS = 30.0
"""For `on_event` to take the remaining events, once the job has ended."""

logger = logging.getLogger(__name__)


class _Thread(threading.local):
    """Whether this thread is in a block of `without_events`."""

    is_quiet = False


_thread = _Thread()


def makes_events() -> bool:
    """Return whether log records of this thread in a role become events."""
    return not _thread.is_quiet


@contextmanager
def without_events() -> Iterator[None]:
    """Keep log records of this thread from becoming events, within a block.

    The thread handles an event, and would cause another one, and so on; or it holds the lock of sending events.
    """
    before, _thread.is_quiet = _thread.is_quiet, True
    try:
        yield
    finally:
        _thread.is_quiet = before


@contextmanager
def dispatching(on_event: OnEvent) -> Iterator[Callable[[Event], None]]:
    """Yield a function that takes events, within a block; a thread calls `on_event` with them, one after the other.

    `on_event` may wait, log, or raise: no role, and no event loop of Dask, waits for it or fails with it. The first
    exception is logged. At the end of the block it has half a minute for the remaining events.
    """
    events: SimpleQueue[Event | None] = SimpleQueue()
    hearing = threading.Thread(target=_hear, args=[events, on_event], name="psflow-on-event", daemon=True)
    hearing.start()
    try:
        yield events.put
    finally:
        events.put(None)
        hearing.join(HEAR_SECS)
        if hearing.is_alive():
            logger.warning(
                "on_event did not take the last events within %g s after the end of the job: about %d are lost",
                HEAR_SECS,
                events.qsize(),
            )


def _hear(events: SimpleQueue[Event | None], on_event: OnEvent) -> None:
    num_failed = 0
    with without_events():
        while (event := events.get()) is not None:
            try:
                on_event(event)
            except BaseException:  # also sys.exit, which ends a thread silently: the job continues
                num_failed += 1
                if num_failed == 1:
                    logger.exception("on_event failed with %s; the job goes on, and further errors are counted", event)
        if num_failed > 1:
            logger.error("on_event failed with %d events", num_failed)
