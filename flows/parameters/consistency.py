"""How the pushes of several replicas become updates: a name, or a mapping of a name and its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag

from psflow.flows.parameters.base import Parameters, value_of
from psflow.ps_runtime.errors import did_you_mean
from psflow.ps_runtime.specs.consistency import CONSISTENCIES, Consistency

__all__ = [
    "AsyncParameters",
    "BoundedStalenessParameters",
    "ConsistencyParameters",
    "HogwildParameters",
    "SyncParameters",
    "build_consistency",
]

NAME = "Given alone, without a mapping, it has the defaults of its options."


class AsyncParameters(Parameters):
    """Every push is applied at once: the fastest, and the stalest."""

    name: Literal["async"] = Field(description=NAME)
    staleness_aware: bool = Field(
        False, description="Whether to divide the learning rate of a push by its staleness, where that is more than 1."
    )


class BoundedStalenessParameters(Parameters):
    """Every push is applied, none of them too many updates after its pull: a replica that is ahead waits."""

    name: Literal["bounded_staleness"] = Field(description=NAME)
    max_staleness: int = Field(
        4,
        ge=0,
        description="Most updates between a replica's pull and its push; with 0 the replicas take turns.",
    )


class SyncParameters(Parameters):
    """The mean of several gradients of one step is one update."""

    name: Literal["sync"] = Field(description=NAME)
    replicas_to_aggregate: int | None = Field(
        None,
        ge=1,
        description="Gradients of an update; null: one of each replica. With fewer the others are backups, with more "
        "each gives several.",
    )


class HogwildParameters(Parameters):
    """As async, but replicas on the host of a ps read its memory while it is being written."""

    name: Literal["hogwild"] = Field(description=NAME)


KINDS: Mapping[str, type[BaseModel]] = {
    "async": AsyncParameters,
    "bounded_staleness": BoundedStalenessParameters,
    "sync": SyncParameters,
    "hogwild": HogwildParameters,
}


def _as_mapping(value: Any) -> Any:
    """Return the mapping that a name stands for; refuse what names no consistency."""
    given = {"name": value} if isinstance(value, str) else value
    name = value_of(given, "name")
    known = ", ".join(KINDS)
    if not isinstance(name, str):
        raise ValueError(f"expected one of {known}, or a mapping with one of these as name, got {value!r}")
    if name not in KINDS:
        raise ValueError(f"unknown consistency {name!r}, expected one of {known}{did_you_mean(name, KINDS)}")
    return given


def _kind(value: Any) -> str:
    return KINDS[value_of(value, "name")].__name__


ConsistencyParameters = Annotated[
    Annotated[AsyncParameters, Tag("AsyncParameters")]
    | Annotated[BoundedStalenessParameters, Tag("BoundedStalenessParameters")]
    | Annotated[SyncParameters, Tag("SyncParameters")]
    | Annotated[HogwildParameters, Tag("HogwildParameters")],
    Discriminator(_kind),
    BeforeValidator(
        _as_mapping,
        json_schema_input_type=Literal["async", "bounded_staleness", "sync", "hogwild"]
        | AsyncParameters
        | BoundedStalenessParameters
        | SyncParameters
        | HogwildParameters,
    ),
]
"""A name alone stands for the mapping of that name with the default options."""


def build_consistency(parameters: ConsistencyParameters) -> Consistency:
    """Return what the job is told."""
    return CONSISTENCIES[parameters.name](**parameters.model_dump(exclude={"name"}))
