"""Kinds of things from a module of the user, named as ``module:Class``: their keys are known once it is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from psflow.flows.parameters.kinds import KindParameters, Nested, parameters_of
from psflow.flows.parameters.parsing import parse_as
from psflow.flows.parameters.user_code import find
from psflow.ps_runtime.errors import ConfigError

__all__ = ["built_by_user", "own_class", "own_parameters"]

P = TypeVar("P", bound=KindParameters)


def own_parameters(
    kind: Callable[..., Any], values: Mapping[str, Any], nested: Mapping[type, Nested], where: str
) -> KindParameters:
    """Check `values` as keys of `kind`, as those of a kind that psflow ships are.

    Raises
    ------
    ConfigError
        With a sentence for every fault, each beginning with `where`.
    """
    try:
        model = parameters_of(kind, f"{kind.__name__}Parameters", KindParameters, {}, nested)
        return parse_as(model, values, {})
    except ConfigError as error:
        raise ConfigError(tuple(f"{where}: {fault}" for fault in error.faults)) from None
    except TypeError as error:
        raise ConfigError((f"{where}: {error}",)) from None


def own_class(name: str, base: type, noun: str) -> Any:
    """Return the class that the user names, a subclass of `base`.

    Raises
    ------
    ConfigError
        If there is no such class.
    """
    kind = find(name, f"{noun} {name}")
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ConfigError((f"{noun} {name}: expected a subclass of {base.__module__}:{base.__name__}, got {kind!r}",))
    return kind


def built_by_user(name: str, base: type, values: Mapping[str, Any]) -> Any:
    """Return an instance of the class that the user names, a subclass of `base`, with `values` as its parameters.

    Raises
    ------
    ConfigError
        If there is no such class, or it has other parameters.
    UsageError
        If it refuses a value.
    """
    noun = base.__name__.lower()
    return own_parameters(own_class(name, base, noun), values, {}, f"{noun} {name}").build()
