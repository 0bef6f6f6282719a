"""Finds the user's modules, and the classes that a configuration names as ``module:Class``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from psflow.flows.parameters.kinds import KindParameters, Nested, parameters_of
from psflow.flows.parameters.parsing import parse_as
from psflow.ps_runtime.errors import ConfigError, did_you_mean
from psflow.ps_runtime.shipping.own_modules import is_installed


def look_in(directory: str | None) -> None:
    """Add `directory` to the search path of user modules."""
    if directory is not None and (path := os.path.abspath(directory)) not in sys.path:
        sys.path.insert(0, path)


def find(name: str, key: str) -> Any:
    """Return the object ``package.module:name``; `key` is its place in the configuration.

    Raises ConfigError if the module cannot be imported, or has no such name.
    """
    module_name, _, function_name = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything
        raise ConfigError((f"{key}: cannot import {module_name!r}: {_reason(error, module_name)}",)) from error
    for part in function_name.split("."):
        if not hasattr(found, part):
            near = did_you_mean(part, [n for n in dir(found) if not n.startswith("_")])
            raise ConfigError((f"{key}: {module_name!r} has no {function_name!r}{near}",))
        found = getattr(found, part)
    return found


def _reason(error: Exception, module_name: str) -> str:
    """Return why a module cannot be imported; for a missing one also the searched places."""
    is_missing = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
    if not is_missing:
        return f"{type(error).__name__}: {error}"
    places = [path for path in map(Path, sys.path) if path.is_dir() and not is_installed(path)]
    shown = ", ".join(dict.fromkeys(str(path.resolve()) for path in places))
    return (
        f"{error}; looked in {shown} and among the installed packages; put the module beside the configuration file, "
        "install it, or name its directory in PYTHONPATH"
    )


P = TypeVar("P", bound=KindParameters)


def own_parameters(
    kind: Callable[..., Any], values: Mapping[str, Any], nested: Mapping[type, Nested], where: str
) -> KindParameters:
    """Check `values` as keys of the user's `kind`, like those of a kind that psflow ships.

    Raises ConfigError with a sentence for every fault, each starting with `where`.
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

    Raises ConfigError if there is no such class.
    """
    kind = find(name, f"{noun} {name}")
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ConfigError((f"{noun} {name}: expected a subclass of {base.__module__}:{base.__name__}, got {kind!r}",))
    return kind


def built_by_user(noun: str, name: str, base: type, values: Mapping[str, Any], nested: Mapping[type, Nested]) -> Any:
    """Return an instance of the class that the user names, a subclass of `base`, with `values` as its parameters.

    `noun` is what an error calls it; `nested` are the configurations of objects among them.

    Raises
    ------
    ConfigError
        If there is no such class, or it lacks a parameter.
    UsageError
        If it refuses a value.
    """
    return own_parameters(own_class(name, base, noun), values, nested, f"{noun} {name}").build()
