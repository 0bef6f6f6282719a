"""Reads untrusted JSON as dataclasses, field by field."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from psflow.ps_runtime.checkpoint.entries import fields_of, whole

T = TypeVar("T")

LAST_SECOND = 253_402_300_799.0
"""Last second of the year 9999, the last year that dates support."""

UnixTime = Annotated[float, LAST_SECOND]
"""Seconds since 1970, up to the last one with a date."""


def from_json(data: bytes | str) -> Any:
    """Return the decoded `data`; ValueError if it is not JSON in UTF-8."""
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def as_kind(kind: type[T], value: Any, key: str) -> T:
    """Return the JSON `value` as a `kind`.

    Raises ValueError if it does not fit, with the key: ``owner.process.pid: expected a whole number >= 0, got '7'``.
    """
    return cast(T, _read(kind, value, key))


def _read(kind: Any, value: Any, key: str) -> Any:
    origin = get_origin(kind)
    if kind is Any:
        return value
    if origin in (Union, UnionType):
        [wanted] = [option for option in get_args(kind) if option is not NoneType]
        return None if value is None else _read(wanted, value, key)
    if origin is Annotated:
        return _number(value, key, *get_args(kind)[1:])
    if origin is not None:
        return {name: _read(get_args(kind)[1], each, f"{key}.{name}") for name, each in _mapping(value, key).items()}
    if is_typeddict(kind):
        hints = _hints(kind)
        if missing := sorted(kind.__required_keys__ - _mapping(value, key).keys()):
            raise ValueError(f"{key}: expected {', '.join(missing)} too; got {sorted(value)}")
        return {name: _read(hints.get(name, Any), each, f"{key}.{name}") for name, each in _mapping(value, key).items()}
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        fields_of(value, tuple(hints), key)
        return kind(**{name: _read(hint, value[name], f"{key}.{name}") for name, hint in hints.items()})
    if kind is int:
        return whole(value, key)
    if kind is float:
        return _number(value, key)
    assert kind is str, f"{key}: no way to read {kind}"
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected a text, got {value!r}")
    return value


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _mapping(value: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{key}: expected an object, got {value!r}")
    return value


def _number(value: Any, key: str, most: float | None = None) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{key}: expected a finite number, got {value!r}")
    if most is not None and not 0 <= value <= most:
        raise ValueError(f"{key}: expected Unix time from 0 to {most:.0f}, got {value!r}")
    return float(value)


_WORDS = ("nan", "inf", "-inf")


def metrics_to_json(metrics: Mapping[str, Any]) -> dict[str, float | str]:
    """Return `metrics` as values for JSON.

    Examples
    --------
    >>> metrics_to_json({"accuracy": 0.5, "loss": float("nan")})
    {'accuracy': 0.5, 'loss': 'nan'}
    """
    plain = {name: float(value) for name, value in metrics.items()}
    return {name: value if math.isfinite(value) else str(value) for name, value in plain.items()}


def metrics_from_json(metrics: Any) -> dict[str, float]:
    """Return the argument of `metrics_to_json`; ValueError, with the key, for invalid values."""
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics: expected an object, got {metrics!r}")
    return {name: _as_json(name, value) for name, value in metrics.items()}


def _as_json(name: str, value: Any) -> float:
    if type(value) in (int, float) or value in _WORDS:
        return float(value)
    raise ValueError(f"metrics.{name}: expected a number, 'nan', 'inf' or '-inf', got {value!r}")
