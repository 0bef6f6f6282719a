"""Which Prefect API a flow talks to: the one that is configured, else that of ``psflow up``, else a server of its own.

The last one lives as long as the flow. It keeps its runs in Prefect's own database, below its home directory, so that
``psflow up`` and ``prefect server start`` show them later.
"""

from __future__ import annotations

import http.client
import logging
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO

from psflow.ps_runtime.config.environment import child_environment, server_auth
from psflow.ps_runtime.deadline import Deadline, stop_clock
from psflow.ps_runtime.errors import ConfigError, RoleFailedError, WaitTimeoutError
from psflow.ps_runtime.signals import signals_blocked
from psflow.tasks.basic_auth import authorization, new_auth_string
from psflow.tasks.prefect_server.health import client_settings, health_fault
from psflow.tasks.started_servers import found

__all__ = ["LocalPrefectServer", "check_named_api", "has_pages", "named_api_url", "prefect_api"]

PROGRAM = Path(__file__).with_name("process.py")
LOG_TAIL_BYTES = 2000
NAMED_SECS = 5.0
"""For an API that exists; a command that it is missing for ends within ten seconds."""
POLL_SECS = 0.5
LAST_TRY_SECS = 0.5
"""For an API that is asked when hardly any time is left."""

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

    The process starts with the object, so that other things can start meanwhile; `wait` says when it answers. It ends
    with `close`, or when this process ends, however that happens. If a profile of Prefect names an API, it leaves at
    once: it finds out by itself, so that nobody has to import Prefect before it can be started. It serves those who
    know its `auth_string`, user and password.

    Notes
    -----
    The process inherits a socket that listens already: a request made too early waits in its queue, so there is
    neither a port that somebody else may take first, nor polling.
    """

    def __init__(self) -> None:
        self.auth_string = new_auth_string()
        self._log: IO[bytes] = tempfile.TemporaryFile(prefix="psflow-prefect-")  # noqa: SIM115 - closed by close
        with socket.create_server(("127.0.0.1", 0)) as listener, signals_blocked():
            self._address: tuple[str, int] = listener.getsockname()
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env=child_environment(SETTINGS | server_auth(self.auth_string)),
                pass_fds=[listener.fileno()],
                # a signal to the terminal, or to all that systemd has started, is for the flow, which needs the server
                # to end well: so it has signals blocked, as it inherits that
                start_new_session=True,
            )
            # asked as early as that, it prepares its answer, which takes half a second, beside what we do until `wait`
            self._question = http.client.HTTPConnection(*self._address)
            self._question.request(
                "GET", "/api/admin/version", headers={"Authorization": authorization(self.auth_string)}
            )
            self._has_answered = False

    @property
    def url(self) -> str:
        """The address of its API."""
        return f"http://{self._address[0]}:{self._address[1]}/api"

    @property
    def pid(self) -> int:
        """The id of its process."""
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
        if self._has_answered:
            return self.url
        self._question.sock.settimeout(timeout_secs)
        try:
            self._question.getresponse().read()
        except TimeoutError:
            raise WaitTimeoutError(f"the local Prefect server at {self.url}", "answer", timeout_secs) from None
        except (ConnectionError, http.client.HTTPException) as error:
            self._process.wait(timeout=timeout_secs)
            raise RoleFailedError("the local Prefect server", f"{error}; {self._log_tail()}") from error
        self._question.close()
        self._has_answered = True
        return self.url

    def close(self, timeout_secs: float = 8.0) -> None:
        """Let the server write down what it has, and end it; kill it after `timeout_secs` at most. Idempotent."""
        self._question.close()
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(stop_clock.limited(timeout_secs))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _log_tail(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
        text = self._log.read().decode(errors="replace").strip()
        return f"its log ends with:\n{text}" if text else "its log is empty"


def named_api_url() -> str | None:
    """Return the Prefect API that the environment or the active Prefect profile names, if any."""
    from prefect.settings import get_current_settings

    return get_current_settings().api.url


def check_named_api(timeout_secs: float = NAMED_SECS) -> None:
    """Refuse a Prefect API that is configured, or that ``psflow up`` has started, if it does not answer in time.

    Raises
    ------
    ConfigError
        If it does not.
    """
    from psflow.ps_runtime.redaction import without_secrets

    url = named_api_url() or found().prefect_api_url
    deadline = Deadline(timeout_secs)
    while url is not None and (error := health_fault(url, max(deadline.remaining_secs, LAST_TRY_SECS))) is not None:
        if deadline.has_passed:
            what = f"the Prefect API at {without_secrets(url)} does not answer within {timeout_secs:g} s"
            how = "start it, or unset PREFECT_API_URL; if psflow up started it, run psflow down, then psflow up"
            raise ConfigError((f"{what}: {without_secrets(str(error)) or type(error).__name__}; {how}",))
        time.sleep(POLL_SECS)


_has_pages: ContextVar[bool] = ContextVar("psflow_prefect_has_pages", default=True)


def has_pages() -> bool:
    """Return whether the Prefect server that flows talk to now shows pages, and stays when the flow ends."""
    return _has_pages.get()


@contextmanager
def prefect_api(server: LocalPrefectServer | None = None, *, timeout_secs: float = 60.0) -> Iterator[str]:
    """Make sure that a Prefect API is there for the flows run inside, and give its address.

    Parameters
    ----------
    server : LocalPrefectServer, optional
        One that was started before, to save time; it is closed at the end, or at once if it is not needed. Without it,
        and with no API configured and none of ``psflow up``, a local server is started.
    timeout_secs : float
        How long to wait for a local server; see `check_named_api` for others.

    Raises
    ------
    WaitTimeoutError
        If a local server does not answer in time.
    RoleFailedError
        If the local server does not start.

    Notes
    -----
    At the end all events, states and logs are sent before the local server ends, so that no run is left unfinished.
    """
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    url = named_api_url() or found().prefect_api_url
    if url is not None:
        if server is not None:
            server.close()
        with temporary_settings(client_settings(url)):
            try:
                yield url
            finally:
                _flush()
        return
    server = server or LocalPrefectServer()
    try:
        settings = {PREFECT_API_URL: server.wait(timeout_secs), PREFECT_API_AUTH_STRING: server.auth_string}
        with temporary_settings(settings), _no_dead_links():
            try:
                yield server.url
            finally:
                _flush()
    finally:
        server.close()


@contextmanager
def _no_dead_links() -> Iterator[None]:
    """Keep Prefect from inviting people to look at a run in a server that has no pages and ends with the run."""
    logger = logging.getLogger("prefect.flow_runs")

    def is_no_link(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("View at ")

    logger.addFilter(is_no_link)
    token = _has_pages.set(False)
    try:
        yield
    finally:
        _has_pages.reset(token)
        logger.removeFilter(is_no_link)


def _flush(timeout_secs: float = 5.0) -> None:
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    EventsWorker.drain_all(timeout=stop_clock.limited(timeout_secs))
    APILogWorker.drain_all(timeout=stop_clock.limited(timeout_secs))
