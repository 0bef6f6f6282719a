"""``psflow train``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from flows.commands import BEGAN_AT
from flows.commands.options import Json
from ps_runtime.errors import UsageError

__all__ = ["train"]


def train(
    settings: Annotated[
        list[str], typer.Argument(metavar="CONF [KEY=VALUE]", help="YAML files and overrides; later ones win.")
    ],
    as_json: Json = False,
) -> Mapping[str, Any]:
    """Train, evaluate and export as CONF says; resume if it was interrupted."""
    from flows.parameters import parse_parameters
    from ps_runtime.config.environment import telemetry_off
    from ps_runtime.config.files import is_override, load

    files = [text for text in settings if not is_override(text)]
    if not files:
        raise UsageError(("expected at least one configuration file, such as conf/digits.yaml",))
    loaded = load(files, [text for text in settings if is_override(text)])
    parameters = parse_parameters(loaded.values, loaded.origins)
    telemetry_off()
    _look_beside(files[0])
    from flows.head_start import head_start

    with head_start(BEGAN_AT):
        from flows.train import train

        return train(parameters)


def _look_beside(file: str) -> None:
    """Let modules of the user that a configuration names stand beside it."""
    directory = os.path.dirname(os.path.abspath(file))
    if directory not in sys.path:
        sys.path.insert(0, directory)
