"""Modules of the user: where they are looked for, and what is found in them."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from psflow.ps_runtime.errors import ConfigError, did_you_mean
from psflow.ps_runtime.shipping.installed import is_installed

__all__ = ["find", "look_in"]


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
