"""A Prefect server for the time of one command.

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
from psflow.tasks.prefect_server.keeper import Keeper, ServerProcess, ServerProgram
from psflow.tasks.schema_revisions import check_prefect_database

LOOK_SECS = 0.05
"""Between two looks whether a process that has not answered is there."""
IN_TEMPORARY_HOME = (
    "there is no home directory that can be written: Prefect keeps the runs of this command in %s; "
    "set PREFECT_HOME to keep them elsewhere"
)
SETTLE_SECS = 30.0
"""For a server that is being started again, before what is queued is sent to it."""

_log = logging.getLogger(__name__)

SETTINGS = {
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    # It lives as long as one flow: nothing here may schedule, expire or clean up other runs in the same database.
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

    The process starts with the object, so that other things can start meanwhile; `wait` says when it answers. From then
    on it is kept: see `Keeper`. It ends with `close`, or when this process ends, however that happens. If a profile of
    Prefect names an API, it leaves at once: it finds out by itself, so that nobody has to import Prefect before it can
    be started. It serves those who know its `auth_string`, user and password.

    Raises
    ------
    ConfigError
        If Prefect's home, where its database is, cannot be written to, or if another version of Prefect made that.

    Notes
    -----
    The process inherits a socket that listens already, and that this process keeps: a request made too early waits in
    its queue, so there is neither a port that somebody else may take, nor polling.
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
        self._keeper: Keeper | None = None

    @property
    def url(self) -> str:
        """The address of its API."""
        return f"http://127.0.0.1:{self._port}/api"

    @property
    def pid(self) -> int:
        """The id of its process, of the latest one if it was started again."""
        return self._process.pid

    def wait(self, timeout_secs: float = 60.0) -> str:
        """Wait until the server answers, and return `url`.

        Raises
        ------
        WaitTimeoutError
            If it does not answer in time.
        RoleFailedError
            If its process has ended; the message has the end of its log.
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
        self._keeper = Keeper(self._program, self._first)
        return self.url

    def settle(self) -> None:
        """Wait some seconds for a server that is being started again; return at once otherwise."""
        if self._keeper is not None:
            self._keeper.settle(stop_clock.limited(SETTLE_SECS))

    def close(self, timeout_secs: float = 8.0) -> None:
        """Let the server write down what it has, and end it; kill it after `timeout_secs` at most. Idempotent."""
        if self._keeper is not None:
            self._keeper.close()
        self._listener.close()
        self._process.end(stop_clock.limited(timeout_secs))
        self._log.close()

    @property
    def _process(self) -> ServerProcess:
        return self._first if self._keeper is None else self._keeper.process
