"""``psflow config``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.answering.answer import Answer
from psflow.flows.commands.options import Json, Settings

__all__ = ["config"]


def config(
    settings: Settings,
    origin: Annotated[bool, typer.Option("--origin", help="Show the file, line or flag that set each value.")] = False,
    as_json: Json = False,
) -> Answer:
    """Show the whole configuration: the values of CONF and the defaults."""
    from psflow.flows.looking.config import config

    return config(settings, with_origins=origin)
