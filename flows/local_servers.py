"""Answers of ``psflow up`` and ``psflow down``."""

from __future__ import annotations

from typing import Any

from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.basic_auth import login_url
from psflow.tasks.local_servers import bring_up, take_down
from psflow.tasks.started_servers import StartedServer

OPEN = (
    "no password: any client that can connect to MLflow can register its own code under the alias best, and any client "
    "that can connect to Prefect can run its own module as a deployment"
)
NAMED_BY = {"prefect": "PREFECT_API_URL, or the Prefect profile", "mlflow": "MLFLOW_TRACKING_URI"}


def up(timeout_secs: float, *, with_password: bool = True, upgrade: bool = False) -> dict[str, Any]:
    """Start missing servers; return the addresses of Prefect and MLflow. Idempotent."""
    endpoints = bring_up(timeout_secs, with_password=with_password, upgrade=upgrade)
    facts: dict[str, Any] = {
        "prefect": _facts("prefect", endpoints.prefect),
        "mlflow": _facts("mlflow", endpoints.mlflow),
    }
    if endpoints.copies:
        facts["copies"] = [str(copy) for copy in endpoints.copies]
    return facts if with_password else {**facts, "warning": OPEN}


def down(timeout_secs: float) -> dict[str, Any]:
    """Stop the servers that `up` started; return the addresses of those that were running."""
    return {"stopped": [server.url for server in take_down(timeout_secs)]}


def _facts(kind: str, where: StartedServer | str) -> dict[str, str]:
    if isinstance(where, str):
        return {"url": without_secrets(where), "named_by": NAMED_BY[kind]}
    facts = {"url": where.url, "login": login_url(where.url, where.auth_string)}
    return facts | {"data": where.serves, "log": where.log}
