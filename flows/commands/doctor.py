"""``psflow doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.answering.answer import Answer
from psflow.flows.commands.options import Json

__all__ = ["doctor"]


def doctor(
    address: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Address of a Dask scheduler; default: start a small cluster on this machine."
        ),
    ] = None,
    as_json: Json = False,
) -> Answer:
    """Check versions, disk, servers and a cluster, and say how to fix each fault; exit code 1 on a fault."""
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.looking.doctor import doctor

    return doctor(address)
