"""From settings to parameters of a flow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from psflow.flows.parameters.faults import faults_of
from psflow.ps_runtime.config.files import Origin
from psflow.ps_runtime.errors import ConfigError

__all__ = ["parse_as"]

P = TypeVar("P", bound=BaseModel)


def parse_as(model: type[P], values: Mapping[str, Any], origins: Mapping[str, Origin]) -> P:
    """Check settings, and return them as parameters of the type `model`.

    Raises
    ------
    ConfigError
        With a sentence for every fault: its file and line, the key, what was expected, what came.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(faults_of(error, model, origins)) from None
