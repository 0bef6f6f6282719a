"""``psflow serve``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from psflow.flows.commands.options import Json

__all__ = ["serve"]


def serve(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONF] [KEY=VALUE]", help="Configurations to serve, with their schedules; changes of all of them."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The most runs at one time.")] = None,
    as_json: Json = False,
) -> Mapping[str, Any]:
    """Serve the flows in Prefect: by hand from its UI, or on the schedules of CONF. Ends with Ctrl-C."""
    from psflow.ps_runtime.config.environment import telemetry_off

    telemetry_off()
    from psflow.flows.serve import serve

    return serve(settings or (), limit)
