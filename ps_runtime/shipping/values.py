"""What a value holds, in words that are the same in every process: numbers, texts, and names of what code defines."""

from __future__ import annotations

import functools
import hashlib
import marshal
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from operator import itemgetter
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from psflow.ps_runtime.shipping.own_modules import ENGINE, is_own

__all__ = ["is_of_engine", "is_of_program", "is_plain", "value_facts"]

SCALARS = {bool, int, float, complex, str, bytes, type(None), type(Ellipsis)}
SERIES = {list, tuple}
UNORDERED = {dict, set, frozenset}
MAX_DEPTH = 100
MAX_DEPTH_OF_PLAIN = 4


def is_of_program(value: Any) -> bool:
    """Return whether the program has defined a function, a class or a module."""
    module = sys.modules.get(str(getattr(value, "__module__", None) or getattr(value, "__name__", None)))
    return module is None or is_own(module)


def is_of_engine(kind: type) -> bool:
    """Return whether a class is psflow's own."""
    return kind.__module__.partition(".")[0] == ENGINE


def is_plain(value: object) -> bool:
    """Return whether `value` is a number or a text, or lists, tuples, sets and dictionaries of them alone."""
    if isinstance(value, dict | set | frozenset) and type(value) in UNORDERED:
        return _are_plain([*value, *(value.values() if isinstance(value, dict) else ())], MAX_DEPTH_OF_PLAIN)
    return _are_plain([value], MAX_DEPTH_OF_PLAIN)


def value_facts(value: object) -> str:
    """Return what tells `value` from others: neither by addresses nor by the order of sets and dictionaries.

    Of a function, a class or a module it is the name. Of an object of a library, but for arrays of numpy, it is the
    name of the class, as for objects in sets and for what lies deeper than 100 levels.
    """
    return _facts(value, {})


def _are_plain(values: list[Any], depth: int) -> bool:
    kinds = set(map(type, values))
    if kinds <= SCALARS:
        return True
    if depth == 0 or not kinds <= SCALARS | SERIES:
        return False
    return _are_plain(list(chain.from_iterable(value for value in values if type(value) in SERIES)), depth - 1)


def _facts(value: Any, seen: dict[int, int], depth: int = 0) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if is_plain(value):
        return _digest(_in_order(value)) if kind in UNORDERED else _digest(value)
    if isinstance(value, FunctionType | MethodType | ModuleType | type):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}"
    if isinstance(value, np.ndarray | np.generic):
        return f"{name} {_array_facts(np.asarray(value))}"
    if isinstance(value, Enum):
        return f"{name}.{value.name} = {_facts(value.value, seen, depth + 1) if depth < MAX_DEPTH else ''}"
    if depth == MAX_DEPTH:
        return name
    if id(value) in seen:  # as often as it is reached, by its number
        return f"#{seen[id(value)]}"
    seen[id(value)] = len(seen)
    return f"{name} {_digest([_facts(part, seen, depth + 1) for part in _held(value)])}"


def _in_order(value: Any) -> list[Any]:
    try:
        keys = sorted(value)
    except TypeError:  # of several kinds
        keys = sorted(value, key=lambda key: marshal.dumps(key, 2))
    return [type(value).__name__, keys, [value[key] for key in keys] if isinstance(value, dict) else None]


def _held(value: Any) -> Iterable[Any]:
    """Return what `value` holds, in an order of its own."""
    match value:
        case Mapping():
            pairs = sorted(((_facts(key, {}), part) for key, part in value.items()), key=itemgetter(0))
            return chain.from_iterable(pairs)
        case list() | tuple():
            return value
        case set() | frozenset():
            return sorted(_facts(part, {}, MAX_DEPTH) for part in value)  # of objects in it, the classes
        case functools.partial():
            return value.func, value.args, value.keywords
        case staticmethod() | classmethod():
            return (value.__func__,)
    return chain.from_iterable(sorted(_state(value).items()))


def _state(value: object) -> dict[str, Any]:
    """Return the attributes of an object of the program without those that psflow's classes set, or of a spec."""
    kind = type(value)
    if not (is_dataclass(kind) if is_of_engine(kind) else is_of_program(kind)):
        return {}
    names = {**getattr(value, "__dict__", {})}
    slots = chain.from_iterable(_slots(base) for base in kind.__mro__)
    names |= {name: getattr(value, name) for name in slots if hasattr(value, name)}
    if is_dataclass(kind):
        return {field.name: names[field.name] for field in fields(kind) if field.name in names}
    engine = [base for base in kind.__mro__ if is_of_engine(base)]
    methods = (part for base in engine for part in vars(base).values() if isinstance(part, FunctionType))
    theirs = set(chain.from_iterable(method.__code__.co_names for method in methods))
    return {name: part for name, part in names.items() if name not in theirs}


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _array_facts(array: np.ndarray[Any, Any]) -> str:
    content = array.tolist() if array.dtype.hasobject else np.ascontiguousarray(array).data.tobytes()
    return f"{array.dtype.descr} {array.shape} {_digest(content) if is_plain(content) else ''}"


def _digest(value: Any) -> str:
    return hashlib.sha256(marshal.dumps(value, 2)).hexdigest()  # version 2 has no references, which may differ
