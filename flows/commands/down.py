"""``psflow down``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from psflow.flows.commands.options import Json

__all__ = ["down"]


def down(
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECS", help="How long to wait for them to end before killing them.")
    ] = 10.0,
    as_json: Json = False,
) -> Mapping[str, Any]:
    """Stop the servers that psflow up started, and nothing else."""
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.local_servers import down

    return down(timeout)
