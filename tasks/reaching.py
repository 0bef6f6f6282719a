"""Whether servers answer, asked without changing anything."""

from __future__ import annotations

import os
from pathlib import Path

from ps_runtime.data.files import without_secrets
from tasks.tracking.store import keep_quiet, mlflow_client, reason_of, sqlite_path

__all__ = ["prefect_fault", "store_fault"]


def prefect_fault(url: str, timeout_secs: float = 10.0) -> str | None:
    """Return why the Prefect API at `url` cannot be used, or None if it answers within `timeout_secs`."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_API_URL, temporary_settings

    with (
        temporary_settings({PREFECT_API_URL: url, PREFECT_API_REQUEST_TIMEOUT: timeout_secs}),
        get_client(sync_client=True) as client,
    ):
        error = client.api_healthcheck()
    if error is None:
        return None
    reason = reason_of(error)
    return f"the Prefect API at {without_secrets(url)} does not answer: {reason}; start it, or correct PREFECT_API_URL"


def store_fault(uri: str) -> str | None:
    """Return why the MLflow store `uri` cannot be used, or None if it can, or can be made.

    Notes
    -----
    A server is asked, and has as long as MLflow gives it. Of a SQLite file only the rights are looked at: MLflow would
    make it, or lock it.
    """
    path = sqlite_path(uri)
    if path is not None:
        return _file_fault(path)
    keep_quiet()
    try:
        mlflow_client(uri).search_experiments(max_results=1)
    except Exception as error:  # each kind of store has errors of its own
        where, reason = without_secrets(uri), reason_of(error)
        return f"the MLflow store {where} cannot be used: {reason}; start it, or correct MLFLOW_TRACKING_URI"
    return None


def _file_fault(path: Path) -> str | None:
    target = path if path.exists() else next(parent for parent in path.parents if parent.exists())
    if os.access(target, os.W_OK):
        return None
    return f"the MLflow store {path} cannot be written to: no right to write to {target}; see MLFLOW_TRACKING_URI"
