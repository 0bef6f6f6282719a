"""Answers ``psflow config``: the whole configuration, and the origin of each value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from psflow.flows.output import Answer
from psflow.flows.parameters.configuration import read_conf
from psflow.flows.parameters.train import parse_parameters
from psflow.ps_runtime.config.files import Settings, dump, flat
from psflow.ps_runtime.redaction import public

DEFAULT = "default"
WIDTH = 36
"""Width of a column."""


def config(arguments: Sequence[str], *, with_origins: bool) -> Answer:
    """Return the configuration of `arguments`, with defaults, without credentials.

    Raises UsageError if it is not a valid configuration.
    """
    conf = read_conf(arguments)
    given = Settings({**conf.settings.values, **conf.sections.model_dump(exclude_unset=True)}, conf.settings.origins)
    parameters = parse_parameters(conf.settings.values, conf.settings.origins)
    values = public({**parameters.model_dump(mode="json"), **conf.sections.model_dump(mode="json")})
    origins = {key: str(given.origin(key) or DEFAULT) for key, _ in flat(values)}
    lines = dump(values).splitlines()
    if with_origins:
        lines = [f"{key:<{WIDTH}} {_shown(value):<{WIDTH}} {origins[key]}" for key, value in flat(values)]
    return Answer({"values": values, "origins": origins}, lines)


def _shown(value: Any) -> str:
    """Return a value in the syntax of an override: JSON is YAML."""
    return value if isinstance(value, str) else json.dumps(value)
