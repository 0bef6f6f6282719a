"""Monitors a local Prefect server: restarts it on the same socket if its process ends unexpectedly."""

from __future__ import annotations

import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from psflow.ps_runtime.deadline import Deadline, StopClock, stop_clock
from psflow.ps_runtime.signals import signals_blocked
from psflow.tasks.basic_auth import authorization

PROGRAM = Path(__file__).with_name("process.py")
LOG_TAIL_BYTES = 2000
BEGUN_ANSWER_SECS = 5.0
"""Timeout for the rest of an answer after its first byte, and for a connection to a full queue."""
LEAST_WAIT_SECS = 0.001
"""Smallest timeout; for a socket 0 means non-blocking."""


@dataclass(frozen=True)
class ServerProgram:
    """Command, environment, socket and log of a server, shared by all its processes."""

    listener: socket.socket
    auth_string: str
    environment: Mapping[str, str]
    directory: str
    log: IO[bytes]

    def start(self) -> ServerProcess:
        """Start a process. May be called from any thread.

        Raises OSError if it cannot be started.
        """
        with signals_blocked():
            process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), str(self.listener.fileno())],
                cwd=self.directory,
                stdin=subprocess.PIPE,
                stdout=self.log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                pass_fds=[self.listener.fileno()],
                # signals from the terminal or systemd are for the flow, which needs the server for a graceful end: the
                # server inherits a mask that blocks them
                start_new_session=True,
            )
        try:
            return ServerProcess(self, process)
        except OSError:
            process.kill()
            process.wait()
            raise

    def ask(self) -> http.client.HTTPConnection:
        """Send a request whose first answer is slow; it waits in the queue of the socket."""
        host, port = self.listener.getsockname()
        question = http.client.HTTPConnection(host, port, timeout=BEGUN_ANSWER_SECS)
        question.request("GET", "/api/admin/version", headers={"Authorization": authorization(self.auth_string)})
        return question

    def log_tail(self) -> str:
        """Return a clause with the end of the log."""
        size = os.fstat(self.log.fileno()).st_size
        text = os.pread(self.log.fileno(), LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
        words = text.decode(errors="replace").strip()
        return f"its log ends with:\n{words}" if words else "its log is empty"


class ServerProcess:
    """A started process with its first request pending.

    Notes
    -----
    The early request makes it prepare its slow first answer while its owner does other work. The process ends when its
    standard input does: when `end` closes it, or when the process of its owner ends.
    """

    def __init__(self, program: ServerProgram, process: subprocess.Popen[bytes]) -> None:
        self._program = program
        self._process = process
        self._question = program.ask()
        self._has_answered = False

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    @property
    def is_serving(self) -> bool:
        """Whether it has answered and is alive."""
        return self._has_answered and not self.has_ended

    def has_answered(self, timeout_secs: float) -> bool:
        """Return whether the first request is answered within some seconds; True is final."""
        if self._has_answered:
            return True
        self._question.sock.settimeout(max(timeout_secs, LEAST_WAIT_SECS))
        try:
            self._question.sock.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        except ConnectionError:  # the process has ended or is ending
            self._question = self._program.ask()
            return False
        return self._take_answer()

    def _take_answer(self) -> bool:
        """Read the incoming answer, and return whether it is valid; repeat the request if it breaks off."""
        try:
            with closing(self._question):
                self._question.sock.settimeout(BEGUN_ANSWER_SECS)
                self._question.getresponse().read()
        except (OSError, http.client.HTTPException):
            self._question = self._program.ask()
        else:
            self._has_answered = True
        return self._has_answered

    def how_it_ended(self) -> str:
        """Return a clause with the signal or the exit code of an ended process."""
        code = self._process.returncode
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def end(self, timeout_secs: float) -> None:
        """Let the process store its data and end; kill it after `timeout_secs`. Idempotent."""
        self._question.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


LOOK_SECS = 0.25
"""Seconds between checks of the process."""
START_SECS = 60.0
"""Timeout for a restarted server to answer."""
JOIN_SECS = 10.0
"""Timeout for the thread to end, as it may be starting a process."""
MAX_RESTARTS = 3
WITHIN_SECS = 60.0

_log = logging.getLogger(__name__)


class Restarts:
    """Limits restarts of a server to `MAX_RESTARTS` within `WITHIN_SECS`.

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
        """Return whether one more restart is allowed now, and count it if so."""
        now = self._clock()
        if len(self._times) == MAX_RESTARTS and now - self._times[0] < WITHIN_SECS:
            return False
        self._times.append(now)
        return True


class ServerMonitor:
    """Watches the process of a server in a thread, and restarts it, until `close`.

    A server that ends too often, cannot be restarted or does not answer is abandoned: later connections to it are
    closed at once. After a signal to this process it is not restarted either.
    """

    def __init__(self, program: ServerProgram, process: ServerProcess, clock: StopClock = stop_clock) -> None:
        self.process = process
        """The latest process."""
        self._program = program
        self._clock = clock
        self._restarts = Restarts()
        self._is_closing = threading.Event()
        self._is_given_up = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="psflow-prefect-monitor", daemon=True)
        self._thread.start()

    def settle(self, timeout_secs: float) -> None:
        """Wait until the server answers or is abandoned, at most `timeout_secs`."""
        deadline = Deadline(timeout_secs)
        while not (self.process.is_serving or deadline.has_passed or self._is_given_up.is_set()):
            self._is_given_up.wait(min(LOOK_SECS, deadline.remaining_secs))

    def close(self) -> None:
        """Stop monitoring; the latest process continues. Idempotent."""
        self._is_closing.set()
        self._thread.join(JOIN_SECS)

    def _keep(self) -> None:
        while not self._is_closing.wait(LOOK_SECS):
            if self.process.has_ended and (why := self._restart()) is not None:
                self._give_up(why)
                return

    def _restart(self) -> str | None:
        """Restart the server, and wait until it answers or has ended; return why it is abandoned, if so."""
        how = self.process.how_it_ended()
        if self._clock.received is not None:
            return f"{how} while the command ended"
        if not self._restarts.take():
            return f"{how}, after {MAX_RESTARTS} restarts within {WITHIN_SECS:g} s"
        _log.warning("the Prefect server of this command %s; restarting it", how)
        self.process.end(0.0)
        try:
            self.process = self._program.start()
            return self._fault_of_start()
        except OSError as error:
            self.process.end(0.0)  # started, but refused the first request
            return f"{how} and could not be restarted: {error}"

    def _fault_of_start(self) -> str | None:
        deadline = Deadline(START_SECS)
        while not (self.process.has_answered(LOOK_SECS) or self.process.has_ended or self._is_closing.is_set()):
            if deadline.has_passed:
                self.process.end(0.0)
                return f"was restarted and did not answer within {START_SECS:g} s"
        return None

    def _give_up(self, why: str) -> None:
        """Log the reason, and close each new connection, so that clients fail at once."""
        self._is_given_up.set()
        level = logging.ERROR if self._clock.received is None else logging.DEBUG  # the command is about to end
        _log.log(level, "the Prefect server of this command %s; the command goes on without it", why)
        listener = self._program.listener
        listener.settimeout(LOOK_SECS)
        while not self._is_closing.is_set():
            try:
                listener.accept()[0].close()
            except TimeoutError:
                continue
            except OSError:  # for example too many open files
                self._is_closing.wait(LOOK_SECS)
