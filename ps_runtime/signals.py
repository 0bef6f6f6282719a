"""Handles signals that reach a whole process group, as Ctrl-C does, but concern one process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OF_THE_OWNER = (signal.SIGINT, signal.SIGTERM)
"""They are for the owner of a cluster or a server; its child processes ignore them."""


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block these signals: a process that is started in the block inherits that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_THE_OWNER)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def how_it_ended(error: BaseException) -> str:
    """Return the description of what ended this process, for others: a signal, an exit, or any other exception.

    Examples
    --------
    >>> how_it_ended(KeyboardInterrupt())
    'it was interrupted (SIGINT)'
    >>> how_it_ended(SystemExit(143))
    'it was terminated (SIGTERM)'
    >>> how_it_ended(SystemExit("enough"))
    "it exited with 'enough'"
    """
    match error:
        case KeyboardInterrupt():
            return "it was interrupted (SIGINT)"
        case SystemExit(code=code) if code == 128 + signal.SIGTERM:
            return "it was terminated (SIGTERM)"
        case SystemExit(code=code):
            return f"it exited with {code!r}"
        case _:
            return repr(error)


@contextmanager
def sigterm_leaves() -> Iterator[None]:
    """Have SIGTERM end a block gracefully, by SystemExit with the exit code of a shell, as Ctrl-C does.

    Notes
    -----
    It changes nothing outside the main thread, which alone may set handlers, and where another handler is set.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
