"""``psflow up``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.answering.answer import Answer
from psflow.flows.commands.options import Json

__all__ = ["up"]


def up(
    timeout: Annotated[float, typer.Option(min=0, metavar="SECS", help="How long to wait for the servers.")] = 120.0,
    no_auth: Annotated[
        bool,
        typer.Option(
            "--no-auth",
            help="Ask for no password. Then whoever can connect to MLflow can put code behind the alias best, and "
            "whoever can connect to Prefect can start a deployment with a module of his.",
        ),
    ] = False,
    upgrade: Annotated[
        bool,
        typer.Option(
            "--upgrade",
            help="Upgrade databases that an older Prefect or MLflow has made, and name the copies that are made first.",
        ),
    ] = False,
    as_json: Json = False,
) -> Answer:
    """Start a Prefect and an MLflow server on this machine in the background, unless there is one already.

    They ask for a password, which every psflow command knows; "login" is the address that logs a browser in.
    """
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.local_servers import up

    return Answer(up(timeout, with_password=not no_auth, upgrade=upgrade), has_password=True)
