"""Checks the fields of a dataclass against their types, and keeps them as plain values."""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from psflow.ps_runtime.errors import ArgumentTypeError

TYPE_NAMES: Mapping[Any, tuple[str, str]] = types.MappingProxyType(
    {
        bool: ("true or false", "booleans"),
        int: ("a whole number", "whole numbers"),
        float: ("a number", "numbers"),
        str: ("text", "texts"),
        os.PathLike: ("a path", "paths"),
        type(None): ("None", "None"),
    }
)
"""Names of a type in error messages: for one value, and for several."""

MAX_SHOWN = 80


class _WrongKindError(Exception):
    """A value has none of the types of its field; the message is a sentence."""


def keep_plain_fields(described: Any) -> None:
    """Check the fields of a frozen dataclass against their types, and keep them as plain values.

    Numbers of numpy become numbers of Python, a whole number such as ``1e4`` an int where one is expected, any
    sequence a tuple, a mapping a dict, and a path its text. None becomes the empty default where there is one. The
    dataclass itself checks ranges and choices.

    Raises
    ------
    ArgumentTypeError
        Has a sentence for each field whose value, or a part of it, is of another type.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Layer:
    ...     units: int
    ...     inputs: Sequence[str] = ()
    ...
    ...     def __post_init__(self) -> None:
    ...         keep_plain_fields(self)
    >>> Layer(np.int64(3), ["age"])
    Layer(units=3, inputs=('age',))
    >>> Layer("3", ["age", 4])
    Traceback (most recent call last):
    ...
    psflow.ps_runtime.errors.ArgumentTypeError: units is '3', expected a whole number
    inputs[1] is 4, expected text
    """
    faults = []
    hints = _hints(type(described))  # type: ignore[arg-type] # mypy takes the instances' __hash__ for that of a class
    for field in fields(described):
        given = getattr(described, field.name)
        if given is field.default:
            continue  # already plain
        if given is None:
            given = _empty_default(field)
        try:
            object.__setattr__(described, field.name, _plain(given, hints[field.name], field.name))
        except _WrongKindError as fault:
            faults.append(str(fault))
    if faults:
        raise ArgumentTypeError(tuple(faults))


@functools.lru_cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the type of each field of a dataclass; resolving ten fields given as text takes 0.2 ms."""
    return get_type_hints(kind)


def _empty_default(field: Field[Any]) -> Any:
    """Return the default of a field if it is empty; else None."""
    if field.default_factory is dict:
        return {}
    return () if field.default == () else None


def _plain(value: Any, hint: Any, where: str) -> Any:
    """Return a value as a plain one of the first type that it has; `where` is its place in the argument."""
    if isinstance(value, np.generic):
        value = value.item()
    kinds = _kinds(hint)
    for kind in kinds:
        if _is_of(value, kind):
            return _converted(value, kind, where)
    if int in kinds and isinstance(value, float) and value.is_integer():
        return int(value)
    raise _WrongKindError(f"{where} is {_shown(value)}, expected {_expected(kinds)}{_as_list(value, kinds)}")


@functools.cache
def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the types that a value may have."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_of(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type; its members are not checked."""
    origin = get_origin(kind) or kind
    if origin is Literal:
        return any(type(value) is type(choice) for choice in get_args(kind))
    if origin is Sequence:
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping | set | frozenset)
    if origin in (int, float):
        return isinstance(value, int if origin is int else (int, float)) and not isinstance(value, bool)
    return isinstance(value, origin)


def _converted(value: Any, kind: Any, where: str) -> Any:
    """Return a value of a type as a plain one."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is Sequence:
        return tuple(_plain(item, inner[0], f"{where}[{place}]") for place, item in enumerate(value))
    if origin is Mapping:
        for key in value:
            if not isinstance(key, inner[0]):
                raise _WrongKindError(f"{where} has the key {_shown(key)}, expected {TYPE_NAMES[inner[0]][0]}")
        return {
            _plain(key, inner[0], where): _plain(item, inner[1], f"{where}[{key!r}]") for key, item in value.items()
        }
    if origin is os.PathLike:
        return _plain(os.fspath(value), str, where)
    return value


def _expected(kinds: Sequence[Any]) -> str:
    shown = [_described(kind, several=False) for kind in kinds]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def _described(kind: Any, *, several: bool) -> str:
    """Return the name of a type in error messages."""
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in TYPE_NAMES:
        return TYPE_NAMES[origin][several]
    if origin is Literal:
        return ", ".join(map(repr, inner))
    if origin is Sequence:
        return f"a list of {' or '.join(_described(member, several=True) for member in _kinds(inner[0]))}"
    if origin is Mapping:
        return f"a mapping of names to {_expected(_kinds(inner[1]))}"
    return str(origin.__name__)


def _as_list(value: Any, kinds: Sequence[Any]) -> str:
    """Return a suggestion to put a single text into a list if a list is expected."""
    return f", such as [{_shown(value)}]" if isinstance(value, str) and Sequence[str] in kinds else ""


def _shown(value: Any) -> str:
    """Return a value as one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
