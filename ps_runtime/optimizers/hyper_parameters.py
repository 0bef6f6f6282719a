"""The hyper-parameters of a class of optimizers, and the values of them that were found valid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from psflow.ps_runtime.errors import UsageError

_Key = tuple[type, tuple[Any, ...], tuple[type, ...]]
"""Class, values and their types: 0, 0.0 and False are equal."""

_valid: set[_Key] = set()
_MAX_VALID = 1024
_PLAIN = frozenset((float, bool, type(None)))


@lru_cache
def hyper_parameters(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return name and default of each hyper-parameter without the learning rate; cached for calls of model_fn."""
    if "__dataclass_fields__" not in vars(kind):  # checkpoints would not know its hyper-parameters
        raise UsageError((f"{kind.__name__} is not a dataclass: decorate it with @dataclass(frozen=True)",))
    return tuple((f.name, f.default) for f in fields(kind) if f.name != "learning_rate")


def is_known(optimizer: object) -> bool:
    """Return whether an optimizer of this class with the same plain values is valid; False if that is not known."""
    return _key_of(optimizer) in _valid


def remember(optimizer: object) -> None:
    """Record that an optimizer is valid, if its values are plain."""
    if (key := _key_of(optimizer)) is not None:
        if len(_valid) >= _MAX_VALID:
            _valid.clear()  # each step may have its own learning rate
        _valid.add(key)


@lru_cache
def _values_of(kind: type) -> Callable[[object], tuple[Any, ...]]:
    return attrgetter("learning_rate", *(name for name, _ in hyper_parameters(kind)))


def _key_of(optimizer: object) -> _Key | None:
    kind: type = type(optimizer)
    values = _values_of(kind)(optimizer)
    types = tuple(map(type, values))
    return (kind, values, types) if _PLAIN.issuperset(types) else None
