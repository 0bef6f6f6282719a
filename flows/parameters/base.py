"""What all parameters of flows have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

__all__ = ["FUNCTION", "Alternatives", "FlowParameters", "KeyFaultsError", "NamesCode", "Strings", "value_of"]

FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
"""``package.module:function``."""
EXPERIMENT = r"^[A-Za-z0-9][\w.-]*$"
"""It names directories and registered models."""
MODEL_NAME = r"^[^/:]*[^/:.\s][^/:]*$"
"""What MLflow takes as the name of a registered model."""

Strings = Annotated[tuple[str, ...], Field(strict=False)]
"""A list, in files and in JSON."""


class FlowParameters(BaseModel):
    """Frozen; knows its keys; takes no value for another type's."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Let forms offer the only value of a field or of an alternative: of a ``const`` the Prefect UI sends none."""
        found = super().__get_pydantic_json_schema__(schema, handler)
        for field in handler.resolve_ref_schema(found).get("properties", {}).values():
            if "const" in field:
                field.setdefault("default", field["const"])
            for part in _parts(field):
                if "const" in part:
                    part["enum"] = [part.pop("const")]
        return found


def _parts(schema: JsonSchemaValue) -> Iterator[JsonSchemaValue]:
    """Yield the schema of a field, and those of its alternatives and of the values that it holds."""
    yield schema
    below = [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    for part in (*schema.get("anyOf", ()), *below):
        yield from _parts(part)


class NamesCode:
    """Parameters that name a function or a class of the user, which is looked for when a flow starts."""


class Alternatives:
    """Annotates a union, so that a form offers its members: the Prefect UI knows ``anyOf``, and no ``oneOf``."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        found["anyOf"] = found.pop("oneOf")
        return found


class KeyFaultsError(ValueError):
    """Faults of keys of a mapping that are found where the mapping is looked at as a whole."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{key}: {fault}" for key, fault in faults.items()))
        self.faults = faults


def value_of(parameters: Any, key: str) -> Any:
    """Return the value of `key` in a mapping or in parameters, None where there is none."""
    return parameters.get(key) if isinstance(parameters, Mapping) else getattr(parameters, key, None)
