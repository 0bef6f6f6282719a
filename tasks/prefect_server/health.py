"""One question to a Prefect API, with an answer in time."""

from __future__ import annotations

__all__ = ["health_fault"]

CONNECTION_TRIES = 4
"""What Prefect gives a client whose server does not take its connection."""


def health_fault(url: str, timeout_secs: float) -> Exception | None:
    """Return why the Prefect API at `url` has not answered within about `timeout_secs`; None if it has.

    Notes
    -----
    Prefect by itself would wait for 60 s, and ask six times.
    """
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    timeouts = (timeout_secs / CONNECTION_TRIES, timeout_secs, timeout_secs, timeout_secs)  # connect, read, write, pool
    with (
        temporary_settings({PREFECT_API_URL: url, PREFECT_CLIENT_MAX_RETRIES: 0}),
        get_client(httpx_settings={"timeout": timeouts}, sync_client=True) as client,
    ):
        return client.api_healthcheck()
