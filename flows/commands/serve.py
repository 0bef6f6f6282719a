"""``psflow serve``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.commands.options import Json

__all__ = ["serve"]


def serve(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONF] [KEY=VALUE]",
            help="Configurations to serve, with their schedules, and overrides for all of them.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of runs at one time.")] = None,
    as_json: Json = False,
) -> None:
    """Serve the flows in Prefect, to run from its UI or on the schedules of CONF, until Ctrl-C."""
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.serve import serve

    serve(settings or (), limit)
