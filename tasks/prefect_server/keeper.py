"""Keeps a local Prefect server: starts it again on the same socket when its process has ended by itself."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from psflow.ps_runtime.deadline import Deadline, StopClock, stop_clock
from psflow.tasks.prefect_server.server_process import ServerProcess, ServerProgram

__all__ = ["Keeper", "Restarts"]

LOOK_SECS = 0.25
"""Between two looks whether the process is there."""
START_SECS = 60.0
"""For a server that was started again to answer."""
JOIN_SECS = 10.0
"""For the thread to end: it may be starting a process."""
MAX_RESTARTS = 3
WITHIN_SECS = 60.0

_log = logging.getLogger(__name__)


class Restarts:
    """How often a server may be started again: `MAX_RESTARTS` times within `WITHIN_SECS`.

    Examples
    --------
    >>> now = 0.0
    >>> restarts = Restarts(clock=lambda: now)
    >>> [restarts.take() for _ in range(4)]
    [True, True, True, False]
    >>> now = 61.0
    >>> restarts.take()
    True
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: deque[float] = deque(maxlen=MAX_RESTARTS)

    def take(self) -> bool:
        """Return whether one more is allowed now, and count it if so."""
        now = self._clock()
        if len(self._times) == MAX_RESTARTS and now - self._times[0] < WITHIN_SECS:
            return False
        self._times.append(now)
        return True


class Keeper:
    """Watches the process of a server in a thread, and starts it again, until `close`.

    A server that ends too often, that cannot be started again or does not answer is given up: from then on connections
    to it are closed at once. It is not started again either once a signal has asked this process to end.
    """

    def __init__(self, program: ServerProgram, process: ServerProcess, clock: StopClock = stop_clock) -> None:
        self.process = process
        """The latest one."""
        self._program = program
        self._clock = clock
        self._restarts = Restarts()
        self._is_closing = threading.Event()
        self._is_given_up = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="psflow-prefect-keeper", daemon=True)
        self._thread.start()

    def settle(self, timeout_secs: float) -> None:
        """Wait until the server answers, unless it is given up, at most `timeout_secs`."""
        deadline = Deadline(timeout_secs)
        while not (self.process.is_serving or deadline.has_passed or self._is_given_up.is_set()):
            self._is_given_up.wait(min(LOOK_SECS, deadline.remaining_secs))

    def close(self) -> None:
        """Start no process any more; the latest one goes on. Idempotent."""
        self._is_closing.set()
        self._thread.join(JOIN_SECS)

    def _keep(self) -> None:
        while not self._is_closing.wait(LOOK_SECS):
            if self.process.has_ended and (why := self._start_again()) is not None:
                self._give_up(why)
                return

    def _start_again(self) -> str | None:
        """Start the server again, and wait until it answers or has ended; return why it is given up, if it is."""
        how = self.process.how_it_ended()
        if self._clock.received is not None:
            return f"{how} while the command ended"
        if not self._restarts.take():
            return f"{how}, after {MAX_RESTARTS} restarts within {WITHIN_SECS:g} s"
        _log.warning("the Prefect server of this command %s; it is started again", how)
        self.process.end(0.0)
        try:
            self.process = self._program.start()
            return self._fault_of_start()
        except OSError as error:
            self.process.end(0.0)  # one that was started and could not be asked
            return f"{how} and could not be started again: {error}"

    def _fault_of_start(self) -> str | None:
        deadline = Deadline(START_SECS)
        while not (self.process.has_answered(LOOK_SECS) or self.process.has_ended or self._is_closing.is_set()):
            if deadline.has_passed:
                self.process.end(0.0)
                return f"was started again and did not answer within {START_SECS:g} s"
        return None

    def _give_up(self, why: str) -> None:
        """Say so, and close each connection as it comes: who waits for an answer learns that none will come."""
        self._is_given_up.set()
        level = logging.ERROR if self._clock.received is None else logging.DEBUG  # it is killed at the end of that time
        _log.log(level, "the Prefect server of this command %s; the command goes on without it", why)
        listener = self._program.listener
        listener.settimeout(LOOK_SECS)
        while not self._is_closing.is_set():
            try:
                listener.accept()[0].close()
            except TimeoutError:
                continue
            except OSError:  # too many open files, say
                self._is_closing.wait(LOOK_SECS)
