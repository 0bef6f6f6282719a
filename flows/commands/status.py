"""``psflow status``."""

from __future__ import annotations

from flows.commands.options import Json
from flows.running.answer import Answer

__all__ = ["status"]


def status(as_json: Json = False) -> Answer:
    """Show which servers are up and how running jobs fare: their roles, and the straggler."""
    from ps_runtime.config.environment import telemetry_off

    telemetry_off()
    from flows.looking.status import status

    return status()
