"""What runs as the MLflow store has it, asked for within a limit: it may be locked, or its server may hang."""

from __future__ import annotations

from psflow.flows.looking.endpoints import Endpoint, mlflow_endpoint
from psflow.ps_runtime.errors import ConfigError, WaitTimeoutError
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.reaching import store_fault
from psflow.tasks.schema_revisions import holds_database
from psflow.tasks.tracking.running import RunningRun, running_runs
from psflow.tasks.tracking.store import keep_quiet, sqlite_path
from psflow.tasks.within import within

__all__ = ["recorded_runs"]

ANSWER_SECS = 15.0
"""A store that is well answers within about two seconds on a slow machine."""


def recorded_runs() -> tuple[Endpoint, list[RunningRun]]:
    """Return the MLflow store that a flow would use, and its runs that have not ended, the newest first.

    Notes
    -----
    Blocks for `ANSWER_SECS` at most, beside the import of MLflow. If the endpoint has a fault, there are no runs.
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
    keep_quiet()  # imports MLflow, for which no store is to blame
    try:
        return within(ANSWER_SECS, lambda: _ask(uri), f"the MLflow store {without_secrets(uri)}")
    except WaitTimeoutError as error:
        return f"{error}: it hangs, or another process keeps its database locked; ask again later", []
    except ConfigError as error:
        return str(error).partition("\n")[0], []  # SQLAlchemy goes on with the query


def _ask(uri: str) -> tuple[str | None, list[RunningRun]]:
    fault = store_fault(uri)
    return fault, running_runs(uri) if fault is None else []
