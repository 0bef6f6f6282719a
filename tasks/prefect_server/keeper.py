"""Keeps a local Prefect server: starts it again on the same socket when its process has ended by itself."""

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
"""For the rest of an answer whose first byte has come, and for a connection to a queue that is full."""
LEAST_WAIT_SECS = 0.001
"""A socket takes a timeout of 0 for another thing."""


@dataclass(frozen=True)
class ServerProgram:
    """What each process of a server starts with, so that a later one is as the first."""

    listener: socket.socket
    auth_string: str
    environment: Mapping[str, str]
    directory: str
    log: IO[bytes]

    def start(self) -> ServerProcess:
        """Start a process. May be called in any thread.

        Raises
        ------
        OSError
            If it cannot be started.
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
                # a signal to the terminal, or to all that systemd has started, is for the flow, which needs the server
                # to end well: so it has signals blocked, as it inherits that
                start_new_session=True,
            )
        try:
            return ServerProcess(self, process)
        except OSError:
            process.kill()
            process.wait()
            raise

    def ask(self) -> http.client.HTTPConnection:
        """Ask for something that takes the server long when it is asked first; the question waits in its queue."""
        host, port = self.listener.getsockname()
        question = http.client.HTTPConnection(host, port, timeout=BEGUN_ANSWER_SECS)
        question.request("GET", "/api/admin/version", headers={"Authorization": authorization(self.auth_string)})
        return question

    def log_tail(self) -> str:
        """Return the end of the log, in words."""
        size = os.fstat(self.log.fileno()).st_size
        text = os.pread(self.log.fileno(), LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
        words = text.decode(errors="replace").strip()
        return f"its log ends with:\n{words}" if words else "its log is empty"


class ServerProcess:
    """A process that was started, and is asked its first question.

    Notes
    -----
    Asked as early as that, it prepares its answer, which takes half a second, beside what its owner does meanwhile. The
    process ends when its standard input does: when `end` closes it, or when the process of its owner is gone.
    """

    def __init__(self, program: ServerProgram, process: subprocess.Popen[bytes]) -> None:
        self._program = program
        self._process = process
        self._question = program.ask()
        self._has_answered = False

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    @property
    def is_serving(self) -> bool:
        """Whether it has answered, and lives."""
        return self._has_answered and not self.has_ended

    def has_answered(self, timeout_secs: float) -> bool:
        """Return whether the first question is answered within some seconds; that stays so."""
        if self._has_answered:
            return True
        self._question.sock.settimeout(max(timeout_secs, LEAST_WAIT_SECS))
        try:
            self._question.sock.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        except ConnectionError:  # the process has ended, or soon will have
            self._question = self._program.ask()
            return False
        return self._take_answer()

    def _take_answer(self) -> bool:
        """Read the answer that has begun to come, and return whether it is one; ask again if it breaks off."""
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
        """Return the signal or the exit code of a process that has ended, in words."""
        code = self._process.returncode
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def end(self, timeout_secs: float) -> None:
        """Let the process write down what it has, and end it; kill it after `timeout_secs`. Idempotent."""
        self._question.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


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
