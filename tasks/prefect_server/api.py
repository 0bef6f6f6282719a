"""Selects the Prefect API of a flow: the configured one, else that of ``psflow up``, else a temporary server.

The temporary server ends with the flow. It stores runs in Prefect's database, below its home directory, so that
``psflow up`` and ``prefect server start`` show them later.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from psflow.ps_runtime.config.environment import may_name_prefect_api
from psflow.ps_runtime.deadline import Deadline, stop_clock
from psflow.ps_runtime.errors import ConfigError
from psflow.tasks.prefect_server.local_server import LocalPrefectServer
from psflow.tasks.started_servers import LOOPBACK_NAMES, found

CONNECTION_TRIES = 4
"""Prefect's number of attempts to connect."""


def client_settings(url: str) -> dict[Any, Any]:
    """Return the Prefect settings for a client of the API at `url`.

    Notes
    -----
    They include the password of a server that ``psflow up`` started; for other servers the user's settings stay.
    """
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL

    started = found()
    ours, theirs = LOOPBACK_NAMES
    if url.rstrip("/").replace(theirs, ours) != started.prefect_api_url or started.prefect_auth_string is None:
        return {PREFECT_API_URL: url}
    return {PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: started.prefect_auth_string}


def health_fault(url: str, timeout_secs: float) -> Exception | None:
    """Return why the Prefect API at `url` has not answered within about `timeout_secs`; None if it has.

    Notes
    -----
    Prefect itself would wait for 60 s, and try six times.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    timeouts = (timeout_secs / CONNECTION_TRIES, timeout_secs, timeout_secs, timeout_secs)  # connect, read, write, pool
    with (
        temporary_settings({**client_settings(url), PREFECT_CLIENT_MAX_RETRIES: 0}),
        get_client(httpx_settings={"timeout": timeouts}, sync_client=True) as client,
    ):
        return client.api_healthcheck()


NAMED_SECS = 5.0
"""Timeout of a named API; a command without its API ends within ten seconds."""
POLL_SECS = 0.5
LAST_TRY_SECS = 0.5
"""Timeout of a request when hardly any time is left."""


def named_api_url() -> str | None:
    """Return the Prefect API that the environment or the active Prefect profile names, if any."""
    if "prefect" not in sys.modules and not may_name_prefect_api():
        return None
    from prefect.settings import get_current_settings

    return get_current_settings().api.url


def check_named_api(timeout_secs: float = NAMED_SECS) -> None:
    """Refuse a configured Prefect API, or one that ``psflow up`` started, if it does not answer in time.

    Raises ConfigError if it does not.
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
    """Return whether the current Prefect server has pages, and outlives the flow."""
    return _has_pages.get()


@contextmanager
def prefect_api(server: LocalPrefectServer | None = None, *, timeout_secs: float = 60.0) -> Iterator[str]:
    """Provide a Prefect API for the flows of the block, and give its address.

    Raises
    ------
    WaitTimeoutError
        If a local server does not answer in time.
    RoleFailedError
        If the local server does not start.

    Notes
    -----
    All events, states and logs are sent before the local server ends, so that no run stays unfinished.
    """
    from prefect.settings import (
        PREFECT_API_AUTH_STRING,
        PREFECT_API_URL,
        PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
        temporary_settings,
    )

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
        settings = {
            PREFECT_API_URL: server.wait(timeout_secs),
            PREFECT_API_AUTH_STRING: server.auth_string,
            PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,  # nobody watches for them; a flow would wait for their thread
        }
        with temporary_settings(settings), _no_dead_links():
            try:
                yield server.url
            finally:
                server.settle()
                _flush()
    finally:
        server.close()


@contextmanager
def _no_dead_links() -> Iterator[None]:
    """Keep Prefect from logging links to a server that has no pages and ends with the run."""
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
