"""Environment variables: nothing else in psflow reads or sets them."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["child_environment", "mlflow_tracking_uri", "telemetry_off"]

TELEMETRY_OFF = {
    "DO_NOT_TRACK": "true",  # Prefect takes 1 as well, MLflow does not
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def telemetry_off() -> None:
    """Keep Prefect and MLflow from reporting usage, in this process and those it starts.

    Notes
    -----
    They look when they are imported: call this before. Idempotent.
    """
    os.environ.update(TELEMETRY_OFF)


def mlflow_tracking_uri() -> str | None:
    """Return the MLflow store to use, or None if nobody chose one."""
    return os.environ.get("MLFLOW_TRACKING_URI") or None


def child_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process to start: that of this process, telemetry off, and `settings`."""
    return os.environ | TELEMETRY_OFF | dict(settings)
