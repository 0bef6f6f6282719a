"""Ends an interrupted command in time, even if other parts hang."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

from psflow.ps_runtime.deadline import END_SECS, ROLES_SECS, StopClock

SIGNALS = (signal.SIGINT, signal.SIGTERM)
POLL_SECS = 0.5
"""Seconds between checks whether a cause other than a signal, such as a cancellation in Prefect, started the clock."""


class Watchdog:
    """Ends this process `END_SECS` after the first signal, with the exit code of the signal; kills roles before.

    A background thread receives the signals, independent of replaced signal handlers and of a blocked main thread.

    Notes
    -----
    Create it in the main thread. It runs until the process ends.
    """

    def __init__(
        self, clock: StopClock, last_words: Callable[[int], None], leave: Callable[[int], object] = os._exit
    ) -> None:
        self._clock = clock
        self._last_words = last_words
        self._leave = leave
        self._alarm, self._wire = socket.socketpair()
        self._wire.setblocking(False)

    def start(self) -> None:
        """Start watching the clock."""
        self._clock.arm()
        signal.set_wakeup_fd(self._wire.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="psflow-watchdog", daemon=True).start()

    def _watch(self) -> None:
        while (received := self._clock.received) is None:
            self._listen()
        time.sleep(self._clock.left(ROLES_SECS))
        with contextlib.suppress(Exception):  # a failure there must not prevent the end
            _kill_workers()
        time.sleep(self._clock.left(END_SECS))
        exit_code = 128 + received
        try:
            _kill_descendants()
            self._last_words(exit_code)
        finally:
            self._leave(exit_code)

    def _listen(self) -> None:
        """Wait briefly for signals; the interpreter writes the number of each to the socket."""
        if select.select([self._alarm], [], [], POLL_SECS)[0]:
            for number in self._alarm.recv(1024):
                if number in SIGNALS:
                    self._clock.begin(signal.Signals(number))


def write_now(descriptor: int, text: str) -> None:
    """Write a line to a file descriptor, unless that would block: its reader may hang, too."""
    with contextlib.suppress(OSError, ValueError):  # `select` supports descriptors below 1024 only
        if select.select([], [descriptor], [], 0.0)[1]:
            os.write(descriptor, text.encode())


def _kill_workers() -> None:
    """Kill the processes of the Dask clusters that this process has started, if it uses Dask."""
    if "psflow.ps_runtime.cluster.connecting" in sys.modules:
        from psflow.ps_runtime.cluster.connecting import kill_local_workers

        kill_local_workers()


def _kill_descendants() -> None:
    """Kill all descendant processes, and remove the directory that they share."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # ended, or of another user
            process.kill()
    if "psflow.ps_runtime.cluster.fork_server" in sys.modules:
        from psflow.ps_runtime.cluster.fork_server import shared_scratch

        shutil.rmtree(shared_scratch(), ignore_errors=True)
