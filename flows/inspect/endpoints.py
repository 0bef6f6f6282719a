"""Addresses of Prefect and MLflow, and queries of the MLflow store with a timeout: it may be locked or hang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psflow.ps_runtime.errors import ConfigError, WaitTimeoutError
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.connectivity import prefect_fault, run_fault, store_fault, within
from psflow.tasks.prefect_server.api import named_api_url
from psflow.tasks.schema_revisions import holds_database, prefect_database_fault
from psflow.tasks.started_servers import found
from psflow.tasks.tracking.child_run import RunningRun, running_runs
from psflow.tasks.tracking.store import keep_quiet, sqlite_path, store_uri

ANSWER_SECS = 10.0
"""Timeout for the answer of a server."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and state of a server or store."""

    address: str
    state: str
    fault: str | None = None

    def facts(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return {"address": self.address or None, "state": self.state, "ok": self.fault is None}

    def __str__(self) -> str:
        return f"{self.address} ({self.state})" if self.address else self.state


def prefect_endpoint() -> Endpoint:
    """Return the Prefect API that a flow would use."""
    url = named_api_url()
    who = "named by PREFECT_API_URL or the Prefect profile"
    if url is None:
        url, who = found().prefect_api_url, "started by psflow up"
    if url is None:
        state = "each flow starts a temporary server; run psflow up for a permanent one"
        return Endpoint("", state, prefect_database_fault())
    fault = prefect_fault(url)
    return Endpoint(without_secrets(url), _state(who, fault), fault)


def _answer_fault(uri: str) -> str | None:
    """Return the result of `store_fault`, or that there was no answer in time."""
    if sqlite_path(uri) is not None:
        return store_fault(uri)
    keep_quiet()  # imports MLflow, which does not count for the timeout
    try:
        return within(ANSWER_SECS, lambda: store_fault(uri), f"the MLflow server {without_secrets(uri)}")
    except WaitTimeoutError as error:
        return f"{error}: it accepts connections, but hangs; restart it, or correct MLFLOW_TRACKING_URI"


def mlflow_endpoint(run_id: str | None = None, ask: Callable[[str], str | None] = _answer_fault) -> Endpoint:
    """Return the MLflow store that a flow would use."""
    store = store_uri()
    server = found().mlflow_uri(store)
    uri = server or store
    unusable = ask(uri)
    fault = run_fault(uri, run_id) if unusable is None and run_id is not None else unusable
    path = sqlite_path(store)
    if server is not None:
        return Endpoint(without_secrets(server), _state("started by psflow up", unusable), fault)
    if path is not None:
        return Endpoint(store, _file_state(path), fault)
    return Endpoint(without_secrets(store), _state("named by MLFLOW_TRACKING_URI", unusable), fault)


def _file_state(path: Path) -> str:
    if holds_database("mlflow", path):
        return "a file that exists"
    return "a file in which the first run creates the tables" if path.exists() else "a file that the first run creates"


def _state(who: str, fault: str | None) -> str:
    return f"{who}, {'answers' if fault is None else 'does not answer'}"


STORE_ANSWER_SECS = 15.0
"""Timeout of a store, which normally answers within two seconds on a slow machine."""


def recorded_runs() -> tuple[Endpoint, list[RunningRun]]:
    """Return the MLflow store that a flow would use, and its runs in progress, newest first.

    Notes
    -----
    Blocks for at most `ANSWER_SECS`, plus the import of MLflow. An endpoint with a fault has no runs.
    """
    runs: list[RunningRun] = []

    def ask(uri: str) -> str | None:
        fault, found = _answer(uri)
        runs.extend(found)
        return fault

    return mlflow_endpoint(ask=ask), runs


def _answer(uri: str) -> tuple[str | None, list[RunningRun]]:
    path = sqlite_path(uri)
    if path is not None and not holds_database("mlflow", path):
        return store_fault(uri), []
    keep_quiet()  # imports MLflow, which does not count for the timeout
    try:
        return within(STORE_ANSWER_SECS, lambda: _ask(uri), f"the MLflow store {without_secrets(uri)}")
    except WaitTimeoutError as error:
        return f"{error}: it hangs, or another process keeps its database locked; try again later", []
    except ConfigError as error:
        return str(error).partition("\n")[0], []  # SQLAlchemy goes on with the query


def _ask(uri: str) -> tuple[str | None, list[RunningRun]]:
    fault = store_fault(uri)
    return fault, running_runs(uri) if fault is None else []
