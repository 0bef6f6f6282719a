"""What all parameters of flows have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

__all__ = ["FUNCTION", "Parameters", "value_of"]

FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
"""``package.module:function``."""


class Parameters(BaseModel):
    """Frozen; knows its keys; takes no value for another type's."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())


def value_of(parameters: Any, key: str) -> Any:
    """Return the value of `key` in a mapping or in parameters, None where there is none."""
    return parameters.get(key) if isinstance(parameters, Mapping) else getattr(parameters, key, None)
