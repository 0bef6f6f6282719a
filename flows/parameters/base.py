"""Base classes of the parameters of flows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
"""``package.module:function``."""
EXPERIMENT = r"^[A-Za-z0-9][\w.-]*$"
"""Pattern of an experiment, which names directories and registered models."""
MODEL_NAME = r"^[^/:]*[^/:.\s][^/:]*$"
"""Pattern of a registered model in MLflow."""
NO_MAPPING = "no_mapping"
"""Error type of a value that should be a mapping whose keys depend on one of them."""

Strings = Annotated[tuple[str, ...], Field(strict=False)]
"""A list, in files and in JSON."""
OneOrMoreStrings = Annotated[Strings, BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]
"""A list, or one string instead of a list of one."""


class FlowParameters(BaseModel):
    """Frozen parameters; refuse unknown keys and values of other types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Let forms offer the only value of a field or an alternative: the Prefect UI sends no value of a ``const``."""
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
    """Parameters that name a function or a class of the user, which is imported when a flow starts."""


class Alternatives:
    """Annotates a union, so that a form offers its members: the Prefect UI supports ``anyOf``, not ``oneOf``."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = handler(schema)
        found["anyOf"] = found.pop("oneOf")
        return found


class KeyFaultsError(ValueError):
    """Faults of keys of a mapping, found by a check of the whole mapping."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{key}: {fault}" for key, fault in faults.items()))
        self.faults = faults


def value_of(parameters: Any, key: str) -> Any:
    """Return the value of `key` in a mapping or in parameters, else None."""
    return parameters.get(key) if isinstance(parameters, Mapping) else getattr(parameters, key, None)


class OnResume(Enum):
    """Effect of a changed key, and of all keys below it, on a resumed job; strictest first."""

    LEARNED = "alters what the job learns: another value makes another job"
    MEASURED = "alters the meaning of evaluation metrics: one curve would mix old and new ones"
    FREE = "sets duration, place or monitoring: it may change"


def declared(model: type[BaseModel], key: str) -> OnResume:
    """Return the declaration of the dotted `key` of `model`, or of the nearest key above it that has one.

    Raises TypeError if none of them has one.

    Examples
    --------
    >>> from psflow.flows.parameters.train import TrainParameters
    >>> declared(TrainParameters, "model.params.hidden_units").name, declared(TrainParameters, "transport").name
    ('LEARNED', 'FREE')
    """
    first, *below = key.split(".")
    field = model.model_fields[first]
    if found := _own(field):
        return found
    if get_origin(field.annotation) is not dict:
        starts = [0]
    elif not below:
        return OnResume.FREE  # no entries; an entry brings its own keys
    else:
        starts = list(range(1, len(below)))  # an entry may have dots in its name
    found_below = [
        declared(kind, ".".join(below[start:]))
        for kind in _models_in(field.annotation)
        for start in starts
        if below[start:] and below[start] in kind.model_fields
    ]
    if not found_below:
        raise TypeError(_fault(model, key))
    return min(found_below, key=list(OnResume).index)


def check_declared(model: type[BaseModel]) -> None:
    """Raise TypeError if a key of `model`, or of a mapping below it, has no declaration, nor has a key above it."""
    faults = list(_undeclared(model, ""))
    if faults:
        raise TypeError("; ".join(_fault(model, key) for key in faults))


def _undeclared(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if _own(field):
            continue
        kinds = _models_in(field.annotation)
        if not kinds:
            yield prefix + name
        for kind in kinds:
            yield from _undeclared(kind, f"{prefix}{name}.")


def _own(field: FieldInfo) -> OnResume | None:
    return next((fact for fact in field.metadata if isinstance(fact, OnResume)), None)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for argument in get_args(annotation) for kind in _models_in(argument)]


def _fault(model: type[BaseModel], key: str) -> str:
    choices = ", ".join(f"OnResume.{kind.name}" for kind in OnResume)
    return (
        f"{model.__name__}: the key {key} does not declare the effect of a change on a resumed job; "
        f"annotate it where it is defined with one of {choices}"
    )
