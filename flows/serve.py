"""Serving the deployments: runs are started when they are asked for, or when their schedule says so."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from types import FrameType
from typing import Any, NoReturn, Self
from uuid import UUID

import httpx
import psutil
from prefect.logging import get_logger
from prefect.runner import Runner

from psflow.flows.deployments import configured, general
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.deadline import stop_clock
from psflow.ps_runtime.errors import UsageError
from psflow.tasks.orphaned_runs import close_orphaned_runs, note_cancelling
from psflow.tasks.prefect_server.api import check_named_api, named_api_url, prefect_api
from psflow.tasks.started_servers import found
from psflow.tasks.tracking.store import prepare_store, reason_of

__all__ = ["serve"]

CLOSE_EVERY_SECS = 30.0
CLOSE_SECS = 60.0
"""For the last look; a server that hangs may take that long to answer."""
RUNS_SECS = 6.0
"""For runs to end well; what they do not record in time is recorded after that."""
NOTE_SECS = 0.5
"""For Prefect to take that they are to end, once all have ended."""
RUN = "prefect.engine"
"""The module that is the program of a run that Prefect starts."""
RUN_ID = "PREFECT__FLOW_RUN_ID"
"""The variable that tells it which one it is."""

_log = get_logger("psflow")


def serve(arguments: Sequence[str], limit: int | None = None) -> NoReturn:
    """Serve the flows until a signal comes. Blocks.

    Raises
    ------
    UsageError
        If a configuration is wrong, or there is no Prefect server that stays.
    SystemExit
        With 128 + the number of the signal.
    """
    deployments = [*general(), *configured(arguments)]
    if named_api_url() is None and found().prefect_api_url is None:
        raise UsageError(
            ("no permanent Prefect server is known: start one with psflow up, or name one with PREFECT_API_URL",)
        )
    check_named_api()
    prepare_store()  # before several runs at once would make it
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it shows how the connections of Prefect's runner end
    ending = _Ending()
    with prefect_api(), _closing_orphaned_runs():
        runner = _Runner(ending, limit)
        for deployment in deployments:
            runner.add_deployment(deployment)
            when = "" if not deployment.schedules else ", on its schedule"
            _log.info("serving %s%s", deployment.full_name, when)
        with ending.at_ctrl_c(), suppress(KeyboardInterrupt):
            asyncio.run(runner.start())
    raise SystemExit(128 + (ending.received or signal.SIGINT))


class _Ending:
    """Lets runs end well at the first signal: the runner kills them. A second one does not wait for them."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        if self.received is None:
            self.received = signal.Signals(number)
            stop_clock.begin(self.received)
            _end_runs(self.received)
        raise KeyboardInterrupt

    @contextmanager
    def at_ctrl_c(self) -> Iterator[None]:
        """Take SIGINT for the time of a block; the runner sees to SIGTERM."""
        previous = signal.signal(signal.SIGINT, self)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, previous)


def _end_runs(received: signal.Signals) -> None:
    """Terminate the runs that the runner has started, and kill what has not ended in time, with all that it started."""
    runs, owners = [], {}
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has just ended
            if RUN in child.cmdline():
                with suppress(psutil.AccessDenied):  # as some systems say it of a child, too
                    if (run_id := child.environ().get(RUN_ID)) is not None:
                        owners[UUID(run_id)] = ProcessId.of(child.pid)
                child.terminate()
                runs.append(child)
    noting = _noting(owners, f"ended by {received.name} to psflow serve")
    _, slow = psutil.wait_procs(runs, RUNS_SECS)
    for run in slow:
        with suppress(psutil.Error):
            for process in (*run.children(recursive=True), run):
                process.kill()
    noting.join(stop_clock.limited(NOTE_SECS))


def _noting(runs: Mapping[UUID, ProcessId], why: str) -> threading.Thread:
    """Begin to say of runs that they are to end, in a thread: they have their time, whether Prefect answers or not."""

    def note() -> None:
        try:
            if runs:
                note_cancelling(runs, why)
        except Exception as error:  # whatever the client raises: the runs end all the same
            _log.warning("Prefect has not noted that its runs are to end, the next look does: %s", reason_of(error))

    thread = threading.Thread(target=contextvars.copy_context().run, args=[note], name="psflow-ending", daemon=True)
    thread.start()
    return thread


class _Runner(Runner):
    """Ends by SIGTERM as it does by Ctrl-C, and outlives a time in which the Prefect API does not answer.

    Prefect's own leaves at once by SIGTERM, whatever runs; and it gives up, and kills what runs, when the API has
    failed three times in a row.
    """

    def __init__(self, ending: _Ending, limit: int | None) -> None:
        super().__init__(pause_on_shutdown=True, limit=limit)
        self._ending = ending

    def handle_sigterm(self, number: int, frame: FrameType | None) -> NoReturn:
        self._ending(number, frame)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        poller: Any = self._scheduled_run_poller  # there is no public way
        poller._get_and_submit_flow_runs = _Patient(poller._get_and_submit_flow_runs)
        return self


class _Patient:
    """Asks the Prefect API for runs to start, and takes no answer for none; it says once that there is none."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        self._ask = ask
        self._is_away = False

    async def __call__(self) -> None:
        try:
            await self._ask()
        except (httpx.TransportError, httpx.HTTPStatusError) as error:
            if (
                isinstance(error, httpx.HTTPStatusError)
                and error.response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR
            ):
                raise
            if not self._is_away:
                _log.warning("the Prefect API does not answer, asking again until it does: %s", reason_of(error))
            self._is_away = True
            return
        if self._is_away:
            _log.warning("the Prefect API answers again")
        self._is_away = False


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
        thread.join(stop_clock.limited(CLOSE_SECS))
