"""``psflow status``."""

from __future__ import annotations

from psflow.flows.answering.answer import Answer
from psflow.flows.commands.options import Json

__all__ = ["status"]


def status(as_json: Json = False) -> Answer:
    """Show the servers and the running jobs, with the speed of each role and the straggler."""
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.looking.status import status

    return status()
