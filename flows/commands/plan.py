"""``psflow plan``."""

from __future__ import annotations

from flows.commands.options import Json, Settings
from flows.running.answer import Answer

__all__ = ["plan"]


def plan(settings: Settings, as_json: Json = False) -> Answer:
    """Show what a training of CONF would do and where; start nothing, write nothing."""
    from ps_runtime.config.environment import telemetry_off

    telemetry_off()
    from flows.looking.plan import plan

    return plan(settings)
