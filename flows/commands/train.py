"""``psflow train``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from psflow.flows.answering.answer import Answer
from psflow.flows.answering.exit_codes import recorded
from psflow.flows.commands import BEGAN_AT
from psflow.flows.commands.options import Json

__all__ = ["train"]


def train(
    settings: Annotated[
        list[str], typer.Argument(metavar="CONF [KEY=VALUE]", help="YAML files and overrides; later ones win.")
    ],
    fork: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Start a new job in DIR from the latest checkpoint of the job of CONF."),
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Resume even if CONF now changes what the job learns.")
    ] = False,
    as_json: Json = False,
) -> Answer:
    """Train, evaluate and export as CONF says; resume an interrupted training."""
    from psflow.flows.parameters.configuration import read_settings
    from psflow.flows.parameters.train import parse_parameters
    from psflow.ps_runtime.config.environment import prepare_environment

    flags: dict[str, tuple[str, Any]] = {} if fork is None else {"--fork": ("resume.fork", fork)}
    flags |= {"--allow-changes": ("resume.allow_changes", True)} if allow_changes else {}
    loaded = read_settings(settings, flags)
    parameters = parse_parameters(loaded.values, loaded.origins)
    prepare_environment()
    from psflow.flows.starting.head_start import head_start

    with head_start(BEGAN_AT):
        from psflow.flows.train import train

        summary = train(parameters, loaded)
    from psflow.flows.watching.summary import shown

    return Answer(summary, shown(summary), recorded(summary))
