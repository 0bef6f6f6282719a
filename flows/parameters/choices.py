"""A choice among kinds of things: by a registered name, or by the name of a class in a module of the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Tag

from psflow.flows.parameters.base import Alternatives, KeyFaultsError, value_of
from psflow.ps_runtime.errors import did_you_mean

__all__ = ["ONE_OF_YOURS", "Choice"]

ONE_OF_YOURS = "or one of your own as package.module:name"


@dataclass(frozen=True)
class Choice:
    """A field whose keys depend on one of them."""

    noun: str
    models: Mapping[str, type[BaseModel]]
    own: type[BaseModel] | None = None
    key: str = "name"
    others: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    is_named_alone: bool = False

    @property
    def annotation(self) -> Any:
        """The type of the field."""
        kinds = [*self.models.values(), *([self.own] if self.own else []), *self.others.values()]
        union = reduce(or_, (Annotated[(kind, Tag(kind.__name__))] for kind in kinds))
        if not self.is_named_alone:
            return Annotated[(union, Discriminator(self._tag), BeforeValidator(self._checked), Alternatives())]
        shown = reduce(or_, [Literal[tuple(self.models)], *kinds])
        return Annotated[
            (union, Discriminator(self._tag), BeforeValidator(self._checked, json_schema_input_type=shown))
        ]

    def _checked(self, value: Any) -> Any:
        """Return the mapping that is meant; refuse a name that is none."""
        given = {self.key: value} if self.is_named_alone and isinstance(value, str) else value
        known = ", ".join([*self.models, *([ONE_OF_YOURS] if self.own else [])])
        if self.is_named_alone and not isinstance(given, Mapping | BaseModel):
            raise ValueError(f"expected one of {known}, or a mapping with one of these as {self.key}, got {value!r}")
        if not isinstance(given, Mapping | BaseModel) or any(value_of(given, key) is not None for key in self.others):
            return given
        name = value_of(given, self.key)
        if name is None:
            raise KeyFaultsError({self.key: f"is missing: expected one of {known}"})
        if not isinstance(name, str) or not (name in self.models or (self.own and ":" in name)):
            near = did_you_mean(name, self.models) if isinstance(name, str) else ""
            raise KeyFaultsError({self.key: f"unknown {self.noun} {name!r}, expected one of {known}{near}"})
        return given

    def _tag(self, value: Any) -> str | None:
        """Return the name of the parameters that are meant, None if `value` is no mapping."""
        if not isinstance(value, Mapping | BaseModel):
            return None
        for key, kind in self.others.items():
            if value_of(value, key) is not None:
                return kind.__name__
        chosen = self.models.get(value_of(value, self.key), self.own)
        return None if chosen is None else chosen.__name__
