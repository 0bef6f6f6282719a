"""Which Prefect API and MLflow store the commands of this place would use, and whether they can be reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.prefect_server.api import named_api_url
from psflow.tasks.reaching import prefect_fault, run_fault, store_fault
from psflow.tasks.schema_revisions import holds_database, prefect_database_fault
from psflow.tasks.started_servers import found
from psflow.tasks.tracking.store import keep_quiet, sqlite_path, store_uri
from psflow.tasks.within import within

__all__ = ["Endpoint", "mlflow_endpoint", "prefect_endpoint"]

ANSWER_SECS = 10.0
"""For a server that is well."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where something is."""

    address: str
    state: str
    fault: str | None = None

    def facts(self) -> dict[str, Any]:
        """Return it as plain data."""
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
        state = "each flow starts a temporary server; psflow up starts a permanent one"
        return Endpoint("", state, prefect_database_fault())
    fault = prefect_fault(url)
    return Endpoint(without_secrets(url), _state(who, fault), fault)


def _answer_fault(uri: str) -> str | None:
    """Return what `store_fault` does, or that there was no answer in time."""
    if sqlite_path(uri) is not None:
        return store_fault(uri)
    keep_quiet()  # imports MLflow, for which no server is to blame
    try:
        return within(ANSWER_SECS, lambda: store_fault(uri), f"the MLflow server {without_secrets(uri)}")
    except WaitTimeoutError as error:
        return f"{error}: it takes connections, but hangs; start it again, or correct MLFLOW_TRACKING_URI"


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
