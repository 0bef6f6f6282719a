"""``psflow config``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.commands.options import Json, Settings
from psflow.flows.running.answer import Answer

__all__ = ["config"]


def config(
    settings: Settings,
    origin: Annotated[
        bool, typer.Option("--origin", help="Say of each value which file, line or flag set it.")
    ] = False,
    as_json: Json = False,
) -> Answer:
    """Show the whole configuration that CONF and its defaults make."""
    from psflow.flows.looking.config import config

    return config(settings, with_origins=origin)
