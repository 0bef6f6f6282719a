"""Objects that a configuration chooses by name, with the parameters of their class as keys."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import reduce
from operator import or_
from os import PathLike
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, create_model, model_validator
from pydantic_core import PydanticCustomError

from psflow.flows.parameters.base import (
    FUNCTION,
    NO_MAPPING,
    Alternatives,
    FlowParameters,
    KeyFaultsError,
    NamesCode,
    value_of,
)
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.keys import Key

P = TypeVar("P", bound="KindParameters")

PLAIN = (bool, int, float, str, type(None))
NOT_IN_CONFIGURATIONS = (PathLike, Callable)
"""Types of parameters that only Python accepts: paths that are not strings, learning rate schedules."""


class KindParameters(FlowParameters):
    """Keys of one kind of object; `parameters_of` makes a subclass for each kind."""

    kind: ClassVar[Callable[..., Any]]

    def build(self) -> Any:
        """Return the object.

        Raises UsageError if it refuses a value, or a combination of values.
        """
        return self.kind(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {name: _built(getattr(self, name)) for name in keys_of(self.kind)}


class CheckedParameters(KindParameters):
    """Keys of an object that is cheap to build: it is built to validate the configuration, unless it has user code."""

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        if _names_code(self):
            return self
        try:
            self.build()
        except UsageError as error:
            raise ValueError("; ".join(error.faults)) from None
        return self


def _names_code(value: Any) -> bool:
    """Return whether `value`, or one of its parameters at any depth, is a class of the user."""
    if isinstance(value, KindParameters):
        return isinstance(value, NamesCode) or any(_names_code(item) for _, item in value)
    if isinstance(value, Mapping):
        return any(map(_names_code, value.values()))
    return isinstance(value, tuple) and any(map(_names_code, value))


def _built(value: Any) -> Any:
    """Return `value` with each of its parameters, at any depth, replaced by the object that it describes."""
    if isinstance(value, KindParameters):
        return value.build()
    if isinstance(value, Mapping):
        return {name: _built(item) for name, item in value.items()}
    return tuple(map(_built, value)) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Nested:
    """Configuration of objects of a type of the engine, such as optimizers."""

    annotation: Any
    of: Callable[[Any], Any]


KEYS_ELSEWHERE = {
    "model_dir", "config", "warm_start_from", "feature_columns", "sparse_combiner", "linear_sparse_combiner"
}  # fmt: skip
"""Parameters of estimators that are not keys of a model."""


@functools.cache
def keys_of(kind: Callable[..., Any]) -> Mapping[str, tuple[Any, Any]]:
    """Return type and default (or MISSING) of each constructor parameter of `kind`.

    Excluded are ``model_dir``, ``config`` and ``warm_start_from`` of an estimator, for which a training has its own
    keys, and ``feature_columns`` with their combiner, for which the input has keys.

    Raises TypeError if a parameter has no type.
    """
    if is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {
            f.name: (hints[f.name], f.default if f.default_factory is MISSING else f.default_factory())
            for f in fields(kind)
            if f.init
        }
    hints = get_type_hints(kind.__init__, include_extras=True)
    found = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in KEYS_ELSEWHERE:
            continue
        if name not in hints:
            raise TypeError(f"{kind.__qualname__}: the parameter {name} has no type; annotate it")
        found[name] = (hints[name], MISSING if parameter.default is parameter.empty else parameter.default)
    return found


def parameters_of(
    kind: Callable[..., Any],
    title: str,
    base: type[P],
    choice: Mapping[str, str],
    nested: Mapping[type, Nested],
) -> type[P]:
    """Return a class with a key for each constructor parameter of `kind`.

    Raises TypeError if a parameter has no type, or one that no configuration can hold.
    """
    made: dict[str, Any] = {
        key: (Literal[name], Field(description=f"Chooses {kind.__name__}.")) for key, name in choice.items()
    }
    for name, (hint, default) in keys_of(kind).items():
        if name in choice:
            continue
        try:
            annotation = _in_configurations(hint, nested)
        except TypeError as error:
            raise TypeError(f"{kind.__qualname__}: the parameter {name} {error}") from None
        plain = default.value if isinstance(default, StrEnum) else default
        shown = next((each.of(default) for of, each in nested.items() if isinstance(default, of)), plain)
        made[name] = (annotation, ... if default is MISSING else shown)
    summary = (inspect.getdoc(kind) or title).partition("\n")[0]
    model: Any = create_model(title, __base__=base, __doc__=summary, **made)
    model.kind = kind
    made_type: type[P] = model
    return made_type


@functools.cache
def _parameters_of_dataclass(kind: type) -> type[CheckedParameters]:
    """Return a class for a dataclass that is the value of a parameter."""
    return parameters_of(kind, kind.__name__, CheckedParameters, {}, {})


def _in_configurations(hint: Any, nested: Mapping[type, Nested]) -> Any:
    """Return the type of `hint` in a configuration."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in PLAIN or origin is Literal:
        return hint
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return Literal[tuple(str(each) for each in hint)]
    if hint in nested:
        return nested[hint].annotation
    if origin is Annotated:
        keys = [fact for fact in arguments[1:] if isinstance(fact, Key)]
        described = [Field(**{name: value for name, value in asdict(key).items() if value is not None}) for key in keys]
        return Annotated[(_in_configurations(arguments[0], nested), *described)]
    if origin in (Union, types.UnionType):
        kept = [a for a in arguments if a not in NOT_IN_CONFIGURATIONS and get_origin(a) not in NOT_IN_CONFIGURATIONS]
        return reduce(or_, (_in_configurations(a, nested) for a in kept))
    if origin in (tuple, list, Sequence):
        item = _in_configurations(arguments[0], nested)
        return Annotated[(types.GenericAlias(tuple, (item, ...)), Field(strict=False))]
    if origin in (dict, Mapping) and arguments[0] is str:
        return types.GenericAlias(dict, (str, _in_configurations(arguments[1], nested)))
    if is_dataclass(hint) and isinstance(hint, type):
        return _parameters_of_dataclass(hint)
    raise TypeError(
        f"is of type {hint}, which no configuration can hold: expected numbers, strings, dataclasses of these, or "
        "lists or mappings of any of them"
    )


ONE_OF_YOURS = "or one of your own as package.module:name"


@dataclass(frozen=True)
class Choice:
    """A field with one key that determines the others."""

    noun: str
    models: Mapping[str, type[BaseModel]]
    own: type[BaseModel] | None = None
    key: str = "name"
    others: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    is_named_alone: bool = False
    names_elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def annotation(self) -> Any:
        """The type of the field."""
        kinds = [*self.models.values(), *([self.own] if self.own else []), *self.others.values()]
        union = reduce(or_, (Annotated[(kind, Tag(kind.__name__))] for kind in kinds))
        tagged = Discriminator(self._tag)
        if not self.is_named_alone:
            return Annotated[(union, tagged, BeforeValidator(self._checked), Alternatives())]
        names = [name for name, model in self.models.items() if not self._required(model)]
        own = [Annotated[str, Field(pattern=FUNCTION)]] if self.own else []
        shown = reduce(or_, [Literal[tuple(names)], *own, *kinds])
        return Annotated[(union, tagged, BeforeValidator(self._checked, json_schema_input_type=shown))]

    def _checked(self, value: Any) -> Any:
        """Return the mapping of a value; refuse another value and an unknown name."""
        given = {self.key: value} if self.is_named_alone and isinstance(value, str) else value
        known = ", ".join([*self.models, *([ONE_OF_YOURS] if self.own else [])])
        if self.is_named_alone and not isinstance(given, Mapping | BaseModel):
            raise ValueError(f"expected one of {known}, or a mapping with one of these as {self.key}, got {value!r}")
        if not isinstance(given, Mapping | BaseModel):
            raise PydanticCustomError(
                NO_MAPPING, "expected a mapping", {"key": " or a ".join([self.key, *self.others])}
            )
        if any(value_of(given, key) is not None for key in self.others):
            return given
        name = value_of(given, self.key)
        if name is None:
            raise KeyFaultsError({self.key: f"is missing: expected one of {known}"})
        if not isinstance(name, str) or not (name in self.models or (self.own and ":" in name)):
            near = did_you_mean(self.names_elsewhere.get(name, name), self.models) if isinstance(name, str) else ""
            raise KeyFaultsError({self.key: f"unknown {self.noun} {name!r}, expected one of {known}{near}"})
        if given is not value and name in self.models and (missing := self._required(self.models[name])):
            keys = ", ".join([self.key, *missing])
            raise ValueError(f"{name} has no default of {', '.join(missing)}: expected a mapping with {keys}")
        return given

    def _required(self, model: type[BaseModel]) -> list[str]:
        """Return the keys, beside that of the name, that have no default."""
        return [key for key, info in model.model_fields.items() if info.is_required() and key != self.key]

    def _tag(self, value: Any) -> str | None:
        """Return the name of the chosen parameters."""
        for key, kind in self.others.items():
            if value_of(value, key) is not None:
                return kind.__name__
        chosen = self.models.get(value_of(value, self.key), self.own)
        return None if chosen is None else chosen.__name__
