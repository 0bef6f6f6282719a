"""``psflow clean``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.answering.answer import Answer
from psflow.flows.commands.options import Json
from psflow.ps_runtime.errors import UsageError

__all__ = ["clean"]


def clean(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what may go, and remove nothing; so it is without --yes, too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove what may go.")] = False,
    as_json: Json = False,
) -> Answer:
    """Show how large runs/, the MLflow store and old exports are, and remove what nobody needs."""
    if dry_run and yes:
        raise UsageError(("--dry-run removes nothing, and --yes does: give one of them",))
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.looking.clean import clean

    return clean(removes=yes)
