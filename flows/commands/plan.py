"""``psflow plan``."""

from __future__ import annotations

from psflow.flows.answering.answer import Answer
from psflow.flows.commands.options import Json, Settings

__all__ = ["plan"]


def plan(settings: Settings, as_json: Json = False) -> Answer:
    """Show what psflow train CONF would do, and where, without starting or writing anything."""
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.looking.plan import plan

    return plan(settings)
