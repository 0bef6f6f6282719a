"""``psflow diff``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.answering.answer import Answer
from psflow.flows.commands.options import Json

__all__ = ["diff"]

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="An MLflow run: its id, a unique prefix of its id, or its name.")
]


def diff(
    first: Run,
    second: Run,
    shows_all: Annotated[
        bool, typer.Option("--all", help="Show the metrics of roles, processor and memory, too.")
    ] = False,
    as_json: Json = False,
) -> Answer:
    """Show what differs between two runs: configuration, data, code, final metrics."""
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.looking.diff import diff

    return diff(first, second, shows_all=shows_all)
