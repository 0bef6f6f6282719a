"""What ``psflow up`` and ``psflow down`` answer."""

from __future__ import annotations

from typing import Any

from psflow.ps_runtime.data.files import without_secrets
from psflow.tasks.local_servers.starting import bring_up
from psflow.tasks.local_servers.stopping import take_down
from psflow.tasks.started_servers import StartedServer

__all__ = ["down", "up"]

NAMED_BY = {"prefect": "PREFECT_API_URL, or the Prefect profile", "mlflow": "MLFLOW_TRACKING_URI"}


def up(timeout_secs: float) -> dict[str, Any]:
    """Start what is missing; return the addresses of Prefect and MLflow, the same ones when it is done again."""
    endpoints = bring_up(timeout_secs)
    return {"prefect": _facts("prefect", endpoints.prefect), "mlflow": _facts("mlflow", endpoints.mlflow)}


def down(timeout_secs: float) -> dict[str, Any]:
    """Stop what `up` has started; return the addresses of what was up."""
    return {"stopped": [server.url for server in take_down(timeout_secs)]}


def _facts(kind: str, where: StartedServer | str) -> dict[str, str]:
    if isinstance(where, str):
        return {"url": without_secrets(where), "named_by": NAMED_BY[kind]}
    return {"url": where.url, "data": where.serves, "log": where.log}
