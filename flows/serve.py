"""Serving the deployments: runs are started when they are asked for, or when their schedule says so."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from prefect import serve as serve_deployments
from prefect.logging import get_logger

from flows.deployments import configured, general
from ps_runtime.errors import UsageError
from tasks.local_servers import found
from tasks.prefect_server import named_api_url, prefect_api
from tasks.strays import close_strays
from tasks.tracking.store import prepare_store

__all__ = ["serve"]

CLOSE_EVERY_SECS = 30.0


def serve(files: Sequence[str], limit: int | None = None) -> dict[str, Any]:
    """Serve the flows until a signal comes. Blocks.

    Parameters
    ----------
    files : sequence of str
        Configurations, each served with its parameters and its schedule, if it has one.
    limit : int, optional
        The most runs at one time.

    Returns
    -------
    dict
        ``deployments``: their names, and ``prefect_api_url``.

    Raises
    ------
    UsageError
        If a configuration is wrong, or there is no Prefect server that stays.
    """
    deployments = [*general(), *configured(files)]
    if named_api_url() is None and found().prefect_api_url is None:
        raise UsageError(
            (
                "expected a Prefect server that stays, there is none: start one with psflow up, or name one with "
                "PREFECT_API_URL",
            )
        )
    prepare_store()  # before several runs at once would make it
    names = [deployment.full_name for deployment in deployments]
    with prefect_api() as url, _closing_strays():
        for deployment in deployments:
            when = "" if not deployment.schedules else ", on its schedule"
            get_logger("psflow").info("serving %s%s", deployment.full_name, when)
        serve_deployments(*deployments, print_starting_message=False, limit=limit)
    return {"deployments": names, "prefect_api_url": url}


@contextmanager
def _closing_strays() -> Iterator[None]:
    """Say of runs whose process was killed that they have ended, now and every half minute."""
    over = threading.Event()

    def close() -> None:
        close_strays()
        while not over.wait(CLOSE_EVERY_SECS):
            close_strays()

    context = contextvars.copy_context()  # of Prefect's settings
    thread = threading.Thread(target=context.run, args=[close], name="psflow-strays", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
