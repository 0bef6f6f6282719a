"""Modules of the user: where they are looked for, what is found in them, and how they reach a cluster of others."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
from pydantic import BaseModel

from psflow.flows.parameters.base import NamesCode
from psflow.ps_runtime.errors import ConfigError, did_you_mean
from psflow.ps_runtime.estimator.installed import is_installed

__all__ = ["find", "look_in", "names_in", "take_along"]


def look_in(directory: str | None) -> None:
    """Let modules of the user stand in `directory`."""
    if directory is not None and (path := os.path.abspath(directory)) not in sys.path:
        sys.path.insert(0, path)


def find(name: str, key: str) -> Any:
    """Return what ``package.module:name`` names; `key` says where it was named.

    Raises
    ------
    ConfigError
        If the module cannot be imported, or has no such name.
    """
    module_name, _, function_name = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever the module does
        raise ConfigError((f"{key}: cannot import {module_name!r}: {_reason(error, module_name)}",)) from error
    for part in function_name.split("."):
        if not hasattr(found, part):
            near = did_you_mean(part, [n for n in dir(found) if not n.startswith("_")])
            raise ConfigError((f"{key}: {module_name!r} has no {function_name!r}{near}",))
        found = getattr(found, part)
    return found


def names_in(parameters: Any) -> Iterator[str]:
    """Yield what `parameters`, and those below them, name as ``package.module:name``."""
    if isinstance(parameters, NamesCode) and parameters.code_name is not None:
        yield parameters.code_name
    if isinstance(parameters, BaseModel):
        for name in type(parameters).model_fields:
            yield from names_in(getattr(parameters, name))
    elif isinstance(parameters, dict):
        for value in parameters.values():
            yield from names_in(value)


def take_along(names: Iterable[str]) -> None:
    """Let the modules that `names` name travel to other machines by value, and the modules beside these, too.

    What is installed must be installed there.
    """
    named = [_file_of(importlib.import_module(name)) for name in sorted({name.partition(":")[0] for name in names})]
    directories = {file.parent for file in named if file is not None and not is_installed(file)}
    for name, module in sorted(sys.modules.items()):
        if name != getattr(module, "__name__", None) or name == "__main__":
            continue
        if (file := _file_of(module)) is not None and file.parent in directories:
            cloudpickle.register_pickle_by_value(module)


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def _reason(error: Exception, module_name: str) -> str:
    """Say why a module cannot be imported, and where it was looked for if it is not there."""
    is_missing = isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}.")
    if not is_missing:
        return f"{type(error).__name__}: {error}"
    places = [path for path in map(Path, sys.path) if path.is_dir() and not is_installed(path)]
    shown = ", ".join(dict.fromkeys(str(path.resolve()) for path in places))
    return (
        f"{error}; looked in {shown} and among the installed packages; put the module beside the configuration file, "
        "install it, or name its directory in PYTHONPATH"
    )
