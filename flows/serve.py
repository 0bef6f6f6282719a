"""Serving the deployments: runs are started when they are asked for, or when their schedule says so."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import psutil
from prefect.logging import get_logger
from prefect.runner import Runner

from psflow.flows.deployments import configured, general
from psflow.ps_runtime.errors import UsageError
from psflow.tasks.orphaned_runs import close_orphaned_runs
from psflow.tasks.prefect_server.api import named_api_url, prefect_api
from psflow.tasks.started_servers import found
from psflow.tasks.tracking.store import prepare_store

__all__ = ["serve"]

CLOSE_EVERY_SECS = 30.0
END_SECS = 15.0
"""For runs to end well; their roles have ten."""
RUN = "prefect.engine"
"""The module that is the program of a run that Prefect starts."""


def serve(arguments: Sequence[str], limit: int | None = None) -> dict[str, Any]:
    """Serve the flows until a signal comes. Blocks.

    Parameters
    ----------
    arguments : sequence of str
        Configurations, each served with its parameters and its schedule, if it has one; and changes of them.
    limit : int, optional
        Maximum number of runs at one time.

    Returns
    -------
    dict
        ``deployments``: their names, and ``prefect_api_url``.

    Raises
    ------
    UsageError
        If a configuration is wrong, or there is no Prefect server that stays.
    """
    deployments = [*general(), *configured(arguments)]
    if named_api_url() is None and found().prefect_api_url is None:
        raise UsageError(
            ("no permanent Prefect server is known: start one with psflow up, or name one with PREFECT_API_URL",)
        )
    prepare_store()  # before several runs at once would make it
    names = [deployment.full_name for deployment in deployments]
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it shows how the connections of Prefect's runner end
    with prefect_api() as url, _closing_orphaned_runs():
        runner = _Runner(pause_on_shutdown=True, limit=limit)
        for deployment in deployments:
            runner.add_deployment(deployment)
            when = "" if not deployment.schedules else ", on its schedule"
            get_logger("psflow").info("serving %s%s", deployment.full_name, when)
        with _ending_runs(), suppress(KeyboardInterrupt):
            asyncio.run(runner.start())
    return {"deployments": names, "prefect_api_url": url}


class _Runner(Runner):
    """Ends by SIGTERM as it does by Ctrl-C; Prefect's own leaves at once then, whatever runs."""

    def handle_sigterm(self, *args: Any, **kwargs: Any) -> None:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def _ending_runs() -> Iterator[None]:
    """Let runs end well at the first Ctrl-C: the runner kills them. A second one does not wait for them."""
    is_ending = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal is_ending
        if not is_ending:
            is_ending = True
            runs = []
            for child in psutil.Process().children():
                with suppress(psutil.Error):  # it has just ended
                    if RUN in child.cmdline():
                        child.terminate()
                        runs.append(child)
            psutil.wait_procs(runs, END_SECS)
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def _closing_orphaned_runs() -> Iterator[None]:
    """Say of runs whose process was killed that they have ended: now, every half minute, and at the end."""
    over = threading.Event()

    def close() -> None:
        while not over.is_set():
            close_orphaned_runs()
            over.wait(CLOSE_EVERY_SECS)
        close_orphaned_runs()

    context = contextvars.copy_context()  # of Prefect's settings
    thread = threading.Thread(target=context.run, args=[close], name="psflow-orphaned-runs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
