"""One process of the local Prefect server: how it starts, whether it answers, how it ended."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from psflow.ps_runtime.signals import signals_blocked
from psflow.tasks.basic_auth import authorization

__all__ = ["ServerProcess", "ServerProgram"]

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
