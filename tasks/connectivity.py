"""Checks that servers answer within a time limit; changes nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.prefect_server.api import health_fault
from psflow.tasks.schema_revisions import holds_database, schema_fault
from psflow.tasks.tracking.run import missing_run
from psflow.tasks.tracking.store import keep_quiet, mlflow_client, reason_of, sqlite_path, unusable

T = TypeVar("T")


def within(timeout_secs: float, ask: Callable[[], T], who: str) -> T:
    """Call `ask`, which needs an answer of `who`, with a timeout; raise what it raises.

    Raises WaitTimeoutError if it takes longer; its thread continues until the answer comes or the process ends.
    """
    answers: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="psflow-question", daemon=True)
    thread.start()
    thread.join(timeout_secs)
    if errors:
        raise errors[0]
    if not answers:
        raise WaitTimeoutError(who, "answer", timeout_secs)
    return answers[0]


def prefect_fault(url: str, timeout_secs: float = 10.0) -> str | None:
    """Return why the Prefect API at `url` cannot be used, or None if it answers within `timeout_secs`."""
    error = health_fault(url, timeout_secs)
    if error is None:
        return None
    reason = reason_of(error)
    return f"the Prefect API at {without_secrets(url)} does not answer: {reason}; start it, or correct PREFECT_API_URL"


def store_fault(uri: str) -> str | None:
    """Return why the MLflow store `uri` cannot be used, or None if it exists or can be created.

    Notes
    -----
    A server gets a request, with MLflow's timeout. For a SQLite file, permissions and schema are checked: MLflow would
    create or lock it.
    """
    path = sqlite_path(uri)
    if path is not None:
        return _file_fault(path) or schema_fault("mlflow", path)
    keep_quiet()
    try:
        mlflow_client(uri).search_experiments(max_results=1)
    except Exception as error:  # each kind of store has its own errors
        return unusable(uri, error, "start it, or correct MLFLOW_TRACKING_URI")
    return None


def run_fault(uri: str, run_id: str) -> str | None:
    """Return why a job cannot continue its MLflow run, or None if the usable store `uri` has the run."""
    from mlflow.exceptions import MlflowException

    path = sqlite_path(uri)
    if path is not None and not holds_database("mlflow", path):
        return missing_run(uri, run_id)
    keep_quiet()
    try:
        run = mlflow_client(uri).get_run(run_id)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return missing_run(uri, run_id)
        return f"the MLflow store {without_secrets(uri)} does not return the run {run_id}: {reason_of(error)}"
    if run.info.lifecycle_stage == "deleted":
        return f"the MLflow run {run_id} of this job was deleted; restore it (mlflow runs restore --run-id {run_id})"
    return None


def _file_fault(path: Path) -> str | None:
    target = path if path.exists() else next(parent for parent in path.parents if parent.exists())
    if os.access(target, os.W_OK):
        return None
    return f"the MLflow store {path} is not writable: no permission for {target}; see MLFLOW_TRACKING_URI"
