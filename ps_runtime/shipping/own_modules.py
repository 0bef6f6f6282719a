"""The modules of the caller's program: those that are neither installed nor of psflow."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from psflow.ps_runtime.shipping.installed import is_installed

__all__ = ["is_own", "pickled_by_value"]

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
    return bool(folders) and not any(map(is_installed, folders))


@contextmanager
def pickled_by_value() -> Iterator[None]:
    """Have cloudpickle write what the program defines by value, for the time of a ``with`` block; not thread-safe."""
    known = cloudpickle.list_registry_pickle_by_value()
    others = [(name, module) for name, module in list(sys.modules.items()) if name not in {"__main__", *known}]
    own = [module for name, module in others if is_own(module) and module.__name__ == name]
    new = [module for module in own if "__file__" in vars(module)]  # modules below a namespace may be installed
    for module in new:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in new:
            cloudpickle.unregister_pickle_by_value(module)
