"""One question to a Prefect API, with an answer in time."""

from __future__ import annotations

from typing import Any

from psflow.tasks.started_servers import LOOPBACK_NAMES, found

__all__ = ["client_settings", "health_fault"]

CONNECTION_TRIES = 4
"""What Prefect gives a client whose server does not take its connection."""


def client_settings(url: str) -> dict[Any, Any]:
    """Return the settings of Prefect with which a client talks to the API at `url`.

    Notes
    -----
    For a server that ``psflow up`` has started they have its password; for any other one what its user has set stays.
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
    Prefect by itself would wait for 60 s, and ask six times.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    timeouts = (timeout_secs / CONNECTION_TRIES, timeout_secs, timeout_secs, timeout_secs)  # connect, read, write, pool
    with (
        temporary_settings({**client_settings(url), PREFECT_CLIENT_MAX_RETRIES: 0}),
        get_client(httpx_settings={"timeout": timeouts}, sync_client=True) as client,
    ):
        return client.api_healthcheck()
