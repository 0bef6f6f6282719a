"""What a change of a key means for a job that goes on: each key of a training says so where it is defined."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

__all__ = ["OnResume", "check_declared", "declared"]


class OnResume(Enum):
    """Annotates a key, and with it all keys below it; the strictest comes first."""

    LEARNED = "alters what is learned: with another value it is another job"
    MEASURED = "alters what the figures of an evaluation mean: those before and after would stand in one curve"
    FREE = "says how long, where or how closely watched: it may change"


def declared(model: type[BaseModel], key: str) -> OnResume:
    """Return what the dotted `key` of `model` declares, or the nearest key above it that declares something.

    Raises
    ------
    TypeError
        If none of them does.

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
        return OnResume.FREE  # there are no entries; with one its own keys come, too
    else:
        starts = list(range(1, len(below)))  # the name of an entry may have dots
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
    """Raise TypeError if a key of `model`, or of a mapping below it, declares nothing, nor does one above it."""
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
        f"{model.__name__}: the key {key} does not say what its change means for a job that goes on; "
        f"annotate it where it is defined with one of {choices}"
    )
