"""``psflow up``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from psflow.flows.commands.options import Json

__all__ = ["up"]


def up(
    timeout: Annotated[float, typer.Option(min=0, metavar="SECS", help="How long to wait for the servers.")] = 120.0,
    as_json: Json = False,
) -> Mapping[str, Any]:
    """Start a Prefect and an MLflow server on this machine in the background, unless there is one already."""
    from psflow.ps_runtime.config.environment import telemetry_off

    telemetry_off()
    from psflow.flows.local_servers import up

    return up(timeout)
