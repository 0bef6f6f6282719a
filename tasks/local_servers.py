"""Starts and stops the Prefect and MLflow servers of ``psflow up`` and ``psflow down``."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.config.environment import HOW_TO_SET_HOME, child_environment, server_auth, temporary_home
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ConfigError, RoleFailedError, WaitTimeoutError
from psflow.tasks import mlflow_program
from psflow.tasks.basic_auth import authorization, new_auth_string
from psflow.tasks.prefect_server import process as prefect_program
from psflow.tasks.prefect_server.api import named_api_url
from psflow.tasks.schema_revisions import check_prefect_database, prefect_database_fault, upgrade_schema
from psflow.tasks.started_servers import Kind, StartedServer, read_started, record_lock, write_started
from psflow.tasks.tracking.store import artifact_location, is_sqlite, prepare_store, sqlite_path, store_uri

KILL_SECS = 5.0
"""Timeout for the system to end a killed process."""


def take_down(timeout_secs: float = 10.0) -> list[StartedServer]:
    """Stop all servers that were started on this host; return those that were running.

    Raises WaitTimeoutError if another such command takes longer, or a process survives being killed.

    Notes
    -----
    Idempotent. A process that reuses the id of a dead server is recognized by its start time, and left alone.
    """
    with record_lock(timeout_secs):
        servers = read_started()
        ended = [server for server in servers if server.process.is_alive()]
        end_servers(ended, timeout_secs)
        # servers of another host or container that shares the directory are left alone
        write_started([server for server in servers if server.process.is_alive() is None])
    return ended


def end_servers(servers: Sequence[StartedServer], timeout_secs: float) -> None:
    """Terminate the processes of servers, and kill those that take longer than `timeout_secs`."""
    processes = [process for server in servers if (process := _process_of(server)) is not None]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, slow = psutil.wait_procs(processes, timeout_secs)
    for process in slow:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, left = psutil.wait_procs(slow, KILL_SECS)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise WaitTimeoutError(f"the killed processes {pids}", "end", KILL_SECS)


def _process_of(server: StartedServer) -> psutil.Process | None:
    """Return a handle of the process of a server, safe against reused ids; None if it has ended."""
    try:
        process = psutil.Process(server.process.pid)
    except psutil.NoSuchProcess:
        return None
    return process if server.process.is_alive() else None


LOOPBACK = "127.0.0.1"
PREFERRED_PORTS: Mapping[Kind, int] = {"prefect": 4200, "mlflow": 5000}
NAMES: Mapping[Kind, str] = {"prefect": "the Prefect server", "mlflow": "the MLflow server"}
QUESTIONS: Mapping[Kind, str] = {"prefect": "/api/health", "mlflow": "/health"}
LOG_TAIL_BYTES = 2000
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
POLL_SECS = 0.2
END_SECS = 5.0


@dataclass(frozen=True)
class Endpoints:
    """Addresses of Prefect and MLflow for all commands of this environment and working directory."""

    prefect: StartedServer | str
    mlflow: StartedServer | str
    copies: tuple[Path, ...] = ()


def bring_up(
    timeout_secs: float = 120.0,
    ports: Mapping[Kind, int] = PREFERRED_PORTS,
    *,
    with_password: bool = True,
    upgrade: bool = False,
) -> Endpoints:
    """Start missing servers, wait until they answer, and return their addresses.

    A server that the environment names is not replaced. The MLflow server serves the SQLite store of the working
    directory, or of ``MLFLOW_TRACKING_URI``; the Prefect server serves the database in Prefect's home.

    Raises
    ------
    ConfigError
        If a running server asks for a password and should not, or vice versa; if there is no writable home directory
        for later commands to find it; if another version of Prefect or MLflow made a database.
    WaitTimeoutError
        If a server does not answer in time; the message includes the end of its log.
    RoleFailedError
        If the process of a server ends before it answers; likewise.

    Notes
    -----
    Idempotent; concurrent calls are safe. After an error or Ctrl-C, no process of this call is left.
    """
    prefect, store = named_api_url(), store_uri()
    with record_lock(timeout_secs) as home:
        up = _Up(home, ports, with_password, upgrade)
        try:
            here: StartedServer | str = prefect or up.server("prefect", str(home))
            mlflow = up.server("mlflow", store) if is_sqlite(store) else store
            deadline = Deadline(timeout_secs)
            for server in (here, mlflow):
                if isinstance(server, StartedServer):
                    _wait_for(server, deadline)
        except BaseException:
            up.undo()
            raise
    return Endpoints(here, mlflow, tuple(up.copies))


class _Up:
    """Running servers and those being started; the caller holds the lock."""

    def __init__(self, home: Path, ports: Mapping[Kind, int], with_password: bool, upgrade: bool) -> None:
        self._home = home
        self._ports = ports
        self._with_password = with_password
        self._upgrade = upgrade
        self.copies: list[Path] = []
        self._before = [server for server in read_started() if server.process.is_alive() is not False]
        self._started: list[StartedServer] = []

    def server(self, kind: Kind, serves: str) -> StartedServer:
        """Return the running server of that kind and data; start it if there is none."""
        for server in self._before:
            if (server.kind, server.serves) == (kind, serves) and server.process.is_alive():
                self._check_password(server)
                return server
        if temporary_home() is not None:
            what = f"no writable home directory, where later commands would find {NAMES[kind]}"
            raise ConfigError((f"{what}; {HOW_TO_SET_HOME}",))
        path = Path(serves, "prefect.db") if kind == "prefect" else sqlite_path(serves)
        is_used = kind == "mlflow" or prefect_database_fault() is not None
        if self._upgrade and path is not None and is_used and (copy := upgrade_schema(kind, path)) is not None:
            self.copies.append(copy)
        if kind == "mlflow":
            prepare_store(serves)
        else:
            check_prefect_database()
        started = self._start(kind, serves)
        self._started.append(started)
        write_started([*self._before, *self._started])  # at once: an unrecorded server could not be stopped
        return started

    def _check_password(self, server: StartedServer) -> None:
        if (server.auth_string is not None) != self._with_password:
            asks = "asks for no password" if self._with_password else "asks for a password"
            what = f"{NAMES[server.kind]} at {server.url} is running and {asks}; to change that run psflow down first"
            raise ConfigError((what,))

    def undo(self) -> None:
        """Stop and forget the servers that were started here."""
        end_servers(self._started, END_SECS)
        write_started(self._before)

    def _start(self, kind: Kind, serves: str) -> StartedServer:
        with _listener(self._ports[kind]) as listener:
            port = listener.getsockname()[1]
            log = self._home / f"psflow-{kind}-{port}.log"
            url = f"http://{LOOPBACK}:{port}"
            auth_string = new_auth_string() if self._with_password else None
            arguments, settings = _program(kind, serves, listener.fileno(), url)
            with open(os.open(log, LOG_FLAGS, 0o600), "wb") as stream:
                os.fchmod(stream.fileno(), 0o600)  # an existing file keeps its permissions
                process = subprocess.Popen(
                    [sys.executable, "-P", *arguments],
                    cwd=self._home,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env=child_environment(settings if auth_string is None else settings | server_auth(auth_string)),
                    pass_fds=[listener.fileno()],
                    start_new_session=True,  # it outlives the terminal, and gets no Ctrl-C from it
                )
        return StartedServer(kind, url, serves, str(log), ProcessId.of(process.pid), auth_string)


def _program(kind: Kind, serves: str, descriptor: int, url: str) -> tuple[Sequence[str], dict[str, str]]:
    """Return command and environment of a server that inherits the listening socket `descriptor`."""
    if kind == "prefect":
        settings = {"PREFECT_SERVER_LOGGING_LEVEL": "WARNING", "PREFECT_UI_API_URL": f"{url}/api"}
        return [prefect_program.__file__, str(descriptor), "stays"], settings
    program = [mlflow_program.__file__, str(descriptor), serves, artifact_location(serves) or ""]
    return program, {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def _listener(preferred: int) -> socket.socket:
    """Return a listening socket on loopback, at the `preferred` port if it is free, else at any port."""
    try:
        return socket.create_server((LOOPBACK, preferred))
    except OSError:
        return socket.create_server((LOOPBACK, 0))


def _wait_for(server: StartedServer, deadline: Deadline) -> None:
    """Wait until a server answers."""
    seen = "no time was left for a request"
    while (left := deadline.remaining_secs) > 0:
        try:
            status = _status(server, left)
        except (OSError, http.client.HTTPException) as error:
            status, seen = 0, str(error)
        if status == http.client.OK:
            return
        if not server.process.is_alive():
            raise RoleFailedError(NAMES[server.kind], f"its process ended before it answered; {_tail(server)}")
        seen = f"it answers with HTTP {status}" if status else seen
        time.sleep(POLL_SECS)
    raise WaitTimeoutError(
        f"{NAMES[server.kind]} at {server.url}", "answer", deadline.timeout_secs, f"{seen}; {_tail(server)}"
    )


def _status(server: StartedServer, timeout_secs: float) -> int:
    """Check the health of a server; an early request waits in the queue of its socket."""
    host = urlsplit(server.url).netloc
    with closing(http.client.HTTPConnection(host, timeout=timeout_secs)) as connection:
        headers = {} if server.auth_string is None else {"Authorization": authorization(server.auth_string)}
        connection.request("GET", QUESTIONS[server.kind], headers=headers)
        return connection.getresponse().status


def _tail(server: StartedServer) -> str:
    try:
        text = Path(server.log).read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError as error:
        text = str(error)
    return f"{server.log} ends with:\n{text}" if text else f"{server.log} is empty"
