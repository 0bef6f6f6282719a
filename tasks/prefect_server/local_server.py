"""A Prefect server for the duration of one command.

Nothing here may import Prefect: a command starts its server before it imports that.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from typing import IO

from psflow.ps_runtime.config.environment import check_prefect_home, child_environment, server_auth, temporary_home
from psflow.ps_runtime.deadline import Deadline, stop_clock
from psflow.ps_runtime.errors import RoleFailedError, WaitTimeoutError
from psflow.tasks.basic_auth import new_auth_string
from psflow.tasks.prefect_server.monitor import ServerMonitor, ServerProcess, ServerProgram
from psflow.tasks.schema_revisions import check_prefect_database

LOOK_SECS = 0.05
"""Seconds between checks of a process that has not answered yet."""
IN_TEMPORARY_HOME = (
    "no writable home directory: Prefect stores the runs of this command in %s; "
    "set PREFECT_HOME to store them elsewhere"
)
SETTLE_SECS = 30.0
"""Timeout for a restarting server before queued data are sent to it."""

_log = logging.getLogger(__name__)

SETTINGS = {
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    # It ends with one flow: it must not schedule, expire or clean up other runs in the same database.
    "PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_FOREMAN_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_REPOSSESSOR_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
}


class LocalPrefectServer:
    """A Prefect server on a free loopback port, in a process and session of its own.

    The process starts with the object, so that other work can go on meanwhile; `wait` returns when it answers. From
    then on `ServerMonitor` restarts it if it dies. It ends with `close`, or when this process ends in any way. If a
    Prefect profile names an API, it exits at once: the process checks that itself, so that no caller has to import
    Prefect first. It serves requests that carry its `auth_string`, user and password.

    Raises ConfigError if Prefect's home, with its database, is not writable, or another version of Prefect made the
    database.

    Notes
    -----
    The process inherits a listening socket, which this process keeps: an early request waits in its queue, so that no
    other program can take the port, and no polling is needed.
    """

    def __init__(self) -> None:
        check_prefect_home()
        check_prefect_database()
        if (home := temporary_home()) is not None:
            _log.warning(IN_TEMPORARY_HOME, home)
        self.auth_string = new_auth_string()
        self._log: IO[bytes] = tempfile.TemporaryFile(prefix="psflow-prefect-")  # noqa: SIM115 - closed by close
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]
        settings = child_environment(SETTINGS | server_auth(self.auth_string))
        self._program = ServerProgram(self._listener, self.auth_string, settings, os.getcwd(), self._log)
        self._first = self._program.start()
        self._keeper: ServerMonitor | None = None

    @property
    def url(self) -> str:
        """Address of its API."""
        return f"http://127.0.0.1:{self._port}/api"

    @property
    def pid(self) -> int:
        """Id of its latest process."""
        return self._process.pid

    def wait(self, timeout_secs: float = 60.0) -> str:
        """Wait until the server answers; return `url`.

        Raises
        ------
        WaitTimeoutError
            If it does not answer in time.
        RoleFailedError
            If its process has ended; the message includes the end of its log.
        """
        if self._keeper is not None:
            return self.url
        deadline = Deadline(timeout_secs)
        while not self._first.has_answered(min(LOOK_SECS, deadline.remaining_secs)):
            if self._first.has_ended:
                what = f"its process {self._first.how_it_ended()} before it answered; {self._program.log_tail()}"
                raise RoleFailedError("the local Prefect server", what)
            if deadline.has_passed:
                raise WaitTimeoutError(f"the local Prefect server at {self.url}", "answer", timeout_secs)
        self._keeper = ServerMonitor(self._program, self._first)
        return self.url

    def settle(self) -> None:
        """Wait some seconds for a restarting server; return at once otherwise."""
        if self._keeper is not None:
            self._keeper.settle(stop_clock.limited(SETTLE_SECS))

    def close(self, timeout_secs: float = 8.0) -> None:
        """Let the server store its data and end; kill it after `timeout_secs`. Idempotent."""
        if self._keeper is not None:
            self._keeper.close()
        self._listener.close()
        self._process.end(stop_clock.limited(timeout_secs))
        self._log.close()

    @property
    def _process(self) -> ServerProcess:
        return self._first if self._keeper is None else self._keeper.process
