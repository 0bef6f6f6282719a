"""What is logged in the process of a role, told to the owner of the job as events."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.events import LogMessage
from psflow.ps_runtime.roles.hearing import is_told

__all__ = ["told_logs"]

LIBRARIES = ("asyncio", "bokeh", "distributed", "tornado")
"""Loggers of what carries the role; they say nothing of it, and it carries these events as well."""
MAX_CHARS = 8000
"""Of one record."""
BURST = 200
PER_SEC = 20.0
"""How many records a role may log on average; the scheduler carries them, and a person could read no more."""


class _RoleLog:
    """The records of one role, so many at most."""

    def __init__(self, context: RoleContext, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = context
        self._clock = clock
        self._left, self._filled_at = float(BURST), clock()
        self._num_left_out = 0

    def take(self, record: logging.LogRecord, text: str) -> None:
        now = self._clock()
        self._left = min(float(BURST), self._left + PER_SEC * (now - self._filled_at))
        self._filled_at = now
        if self._left < 1:
            self._num_left_out += 1
            return
        self._left -= 1
        self.tell_left_out()
        self._tell(record.created, record.levelno, record.name, text)

    def tell_left_out(self) -> None:
        """Say how many records were left out since it was last said, if any were."""
        if self._num_left_out:
            text = f"{self._num_left_out} log records were dropped: a role may log {PER_SEC:g} per second"
            self._num_left_out = 0
            self._tell(time.time(), logging.WARNING, __name__, text)

    def _tell(self, created: float, level: int, name: str, text: str) -> None:
        self._context.emit(LogMessage(max(level, 0), str(name), text[:MAX_CHARS], time=max(created, 0.0)))


class _ProcessLogs(logging.Handler):
    """Knows the roles of this process: a Dask worker with several threads may run several.

    A record belongs to the role in whose thread it was made; those of other threads, to the first role.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))
        self.addFilter(_is_to_be_told)
        self._roles: dict[int, _RoleLog] = {}
        self._changes = threading.Lock()
        self._level_before = self._level_set = logging.WARNING

    def add(self, role: _RoleLog) -> None:
        """Begin to take what this thread logs."""
        root = logging.getLogger()
        with self._changes:
            if not self._roles:
                self._level_before = root.level
                self._level_set = min(root.level, logging.INFO)  # else a logger without a level of its own is silent
                root.setLevel(self._level_set)
                root.addHandler(self)
            self._roles[threading.get_ident()] = role

    def remove(self) -> None:
        """End it."""
        with self._changes:
            try:
                self._roles.pop(threading.get_ident()).tell_left_out()
            finally:
                if not self._roles:
                    self._leave()

    def _leave(self) -> None:
        root = logging.getLogger()
        root.removeHandler(self)
        if root.level == self._level_set:  # else the user has set another one meanwhile, which stays
            root.setLevel(self._level_before)

    def emit(self, record: logging.LogRecord) -> None:
        role = self._roles.get(record.thread or 0) or next(iter(list(self._roles.values())), None)
        if role is not None:
            try:
                role.take(record, self.format(record))
            except Exception:  # as every handler does: whoever logs must not fail for it
                self.handleError(record)


def _is_to_be_told(record: logging.LogRecord) -> bool:
    """Filter: a thread that logs what is not to be told does not wait for the lock of the handler.

    It may have the lock in which an event is sent, while a thread that has that of the handler is to send a record.
    """
    return is_told() and record.name.partition(".")[0] not in LIBRARIES


_process_logs = _ProcessLogs()


@contextmanager
def told_logs(context: RoleContext) -> Iterator[None]:
    """Send a LogMessage for what is logged at INFO or above while a role runs in this thread.

    Notes
    -----
    What is printed is not sent: it stays where the process writes it.
    """
    _process_logs.add(_RoleLog(context))
    try:
        yield
    finally:
        _process_logs.remove()
