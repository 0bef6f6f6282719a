"""What code reads by name, nested functions included: globals, and modules that it imports when it runs."""

from __future__ import annotations

import dis
import functools
import importlib
import importlib.util
import itertools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType

from psflow.ps_runtime.shipping.own_modules import is_own

__all__ = ["global_names", "imported_names", "own_module"]

IDENTIFIER = re.compile(r"(?<![\w.])[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class _Import:
    """``import name``, or ``from name import names``, `level` packages up."""

    name: str
    level: int
    names: tuple[str, ...]


def global_names(function: FunctionType) -> list[str]:
    """Return the names of the globals that a function reads, as far as its module has them."""
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
        else:  # it binds the first package, and reaches the others by it
            parts = name.split(".")
            found += [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return list(dict.fromkeys(found))


def own_module(name: str) -> ModuleType | None:
    """Return the module of the user that `name` names, imported if need be; None if there is none."""
    if name not in sys.modules and not _may_be_own(name.partition(".")[0]):
        return None
    try:
        module = importlib.import_module(name)
    except Exception:  # it is not there, or of use in other circumstances alone
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
        for text, names in itertools.pairwise(steps):  # of a class; dataclasses read annotations that are text
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
