"""The modules of the caller's program: those that are neither installed nor of psflow."""

from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import cloudpickle

from psflow.ps_runtime.shipping.installed import is_installed

__all__ = ["ByValue", "is_own"]

ENGINE = "psflow"
EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)


def is_own(module: Any) -> bool:
    """Return whether a module is of the program that runs here, and written in Python.

    A checkout of a library that is installed as editable is, one of psflow is not. An extension module is not, either:
    machine code does not travel.
    """
    if not isinstance(module, ModuleType):
        return False  # somebody has put something else into sys.modules
    name = module.__name__
    if name == "__main__":
        return True
    if (top := name.partition(".")[0]) == ENGINE or top in sys.stdlib_module_names:
        return False
    file = vars(module).get("__file__")
    if isinstance(file, str):
        return not file.endswith(EXTENSIONS) and not is_installed(Path(file))
    folders = [Path(folder) for folder in vars(module).get("__path__", ())]  # of a package without __init__.py
    return not all(map(is_installed, folders))


class ByValue:
    """Has cloudpickle write what some modules define by value, for the time of a ``with`` block; not thread-safe."""

    def __init__(self) -> None:
        self._modules: list[ModuleType] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for module in self._modules:
            cloudpickle.unregister_pickle_by_value(module)

    def add(self, module: ModuleType | None) -> None:
        """Take a module in if it is of the program; the user may have done so for all pickles."""
        if module is None or not is_own(module):
            return
        if module.__name__ not in {"__main__", *cloudpickle.list_registry_pickle_by_value()}:
            cloudpickle.register_pickle_by_value(module)
            self._modules.append(module)
