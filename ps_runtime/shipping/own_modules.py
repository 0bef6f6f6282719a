"""Finds the modules of the caller's program, which are neither installed nor part of psflow."""

from __future__ import annotations

import csv
import dis
import functools
import importlib
import importlib.machinery
import importlib.util
import itertools
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import CodeType, FunctionType, ModuleType
from typing import Any, Self

import cloudpickle

LIBRARY_FOLDERS = ("site-packages", "dist-packages")
MODULES = tuple(importlib.machinery.all_suffixes())


def is_installed(path: Path) -> bool:
    """Return whether `path` belongs to the standard library, or was installed by pip or the system.

    A checkout that is installed as editable is the user's own: its files are elsewhere.
    """
    roots = _roots(tuple(sys.path))
    return f"{path}{os.sep}".startswith(roots) or f"{path.resolve()}{os.sep}".startswith(roots)


@functools.lru_cache(maxsize=8)
def _roots(path: tuple[str, ...]) -> tuple[str, ...]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    named = [sysconfig.get_path(kind) for kind in kinds]
    # libraries outside this environment: --system-site-packages, PYTHONPATH, a .pth file
    of_path = [entry for entry in path if Path(entry).name in LIBRARY_FOLDERS]
    roots = (*named, *site.getsitepackages(), site.getusersitepackages(), *of_path)
    found = tuple(dict.fromkeys(f"{Path(root).resolve()}{os.sep}" for root in roots))
    folders = (Path(entry).resolve() for entry in path)
    others = (folder for folder in folders if not f"{folder}{os.sep}".startswith(found))
    return (*found, *itertools.chain.from_iterable(map(_of_target, others)))


def _of_target(folder: Path) -> Iterator[str]:
    """Yield the paths that ``pip install --target`` has put into a folder, which may hold files of the user as well.

    A package is yielded as a whole. For a namespace, which is open to others, it is the modules that the record names.
    """
    for record in folder.glob("*.dist-info/RECORD"):  # an .egg-info belongs to a checkout
        with suppress(OSError):
            yield from (f"{folder / name}{os.sep}" for name in _of_record(record))


def _of_record(record: Path) -> set[PurePosixPath]:
    rows = csv.reader(record.read_text("utf-8", "surrogateescape").splitlines())
    files = [PurePosixPath(row[0]) for row in rows if row]
    modules = [file for file in files if file.name.endswith(MODULES) and ".." not in file.parts]
    packages = {module.parent for module in modules if module.name.startswith("__init__.")}
    return {next((one for one in module.parents[-2::-1] if one in packages), module) for module in modules}


ENGINE = "psflow"
EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)


def is_own(module: Any) -> bool:
    """Return whether a module belongs to the program that runs here, and is written in Python.

    A library checkout installed as editable does, a psflow checkout does not. Extension modules do not, either: machine
    code does not travel.
    """
    if not isinstance(module, ModuleType):
        return False  # sys.modules may hold other objects
    name = module.__name__
    if name == "__main__":
        return True
    if (top := name.partition(".")[0]) == ENGINE or top in sys.stdlib_module_names:
        return False
    file = vars(module).get("__file__")
    if isinstance(file, str):
        return not file.endswith(EXTENSIONS) and not is_installed(Path(file))
    folders = [Path(folder) for folder in vars(module).get("__path__", ())]  # for a package without __init__.py
    return not all(map(is_installed, folders))


class ByValue:
    """Makes cloudpickle write modules by value within a ``with`` block; not thread-safe."""

    def __init__(self) -> None:
        self._modules: list[ModuleType] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for module in self._modules:
            cloudpickle.unregister_pickle_by_value(module)

    def add(self, module: ModuleType | None) -> None:
        """Add a module if it belongs to the program; the user may have registered it for all pickles."""
        if module is None or not is_own(module):
            return
        if module.__name__ not in {"__main__", *cloudpickle.list_registry_pickle_by_value()}:
            cloudpickle.register_pickle_by_value(module)
            self._modules.append(module)


IDENTIFIER = re.compile(r"(?<![\w.])[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class _Import:
    """``import name``, or ``from name import names``, `level` packages up."""

    name: str
    level: int
    names: tuple[str, ...]


def global_names(function: FunctionType) -> list[str]:
    """Return the names of the globals that a function reads, if its module has them."""
    return [name for name in _names(function.__code__) if name in function.__globals__]


def imported_names(function: FunctionType) -> list[str]:
    """Return the names of the modules that a function imports when it runs, and of attributes that may be modules."""
    package = function.__globals__.get("__package__") or ""
    found: list[str] = []
    for statement in _imports(function.__code__):
        if statement.level and not package:
            continue
        name = importlib.util.resolve_name("." * statement.level + statement.name, package)
        if statement.names:
            found += [name, *(f"{name}.{one}" for one in statement.names)]
        else:  # it binds the first package, and reaches the others through it
            parts = name.split(".")
            found += [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return list(dict.fromkeys(found))


def own_module(name: str) -> ModuleType | None:
    """Return the user's module of this name, imported if necessary; None if there is none."""
    if name not in sys.modules and not _may_be_own(name.partition(".")[0]):
        return None
    try:
        module = importlib.import_module(name)
    except Exception:  # it is missing, or cannot be imported in this process
        return None
    return module if is_own(module) else None


def _may_be_own(top: str) -> bool:
    if top in sys.modules:
        return is_own(sys.modules[top])
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    return spec is not None and is_own(importlib.util.module_from_spec(spec))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> tuple[str, ...]:
    found: list[str] = []
    for one in _codes(code):
        steps = list(dis.get_instructions(one))
        found += [step.argval for step in steps if step.opname == "LOAD_GLOBAL"]
        for text, names in itertools.pairwise(steps):  # in a class body; dataclasses read annotations that are text
            if names.argval == "__annotations__" and isinstance(text.argval, str):
                found += IDENTIFIER.findall(text.argval)
    return tuple(dict.fromkeys(found))


@functools.lru_cache(maxsize=4096)
def _imports(code: CodeType) -> tuple[_Import, ...]:
    found = []
    for one in _codes(code):
        steps = list(dis.get_instructions(one))
        for level, names, step in zip(steps, steps[1:], steps[2:], strict=False):
            if step.opname == "IMPORT_NAME":
                found.append(_Import(step.argval, level.argval, names.argval or ()))
    return tuple(found)
