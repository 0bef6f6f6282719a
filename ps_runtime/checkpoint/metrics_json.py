"""Metrics as JSON, which knows neither NaN nor infinity: they become the words that `float` understands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["metrics_from_json", "metrics_to_json"]

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
    """Return what `metrics_to_json` was given; ValueError, with the key, where it cannot be."""
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics: expected an object, got {metrics!r}")
    return {name: _number(name, value) for name, value in metrics.items()}


def _number(name: str, value: Any) -> float:
    if type(value) in (int, float) or value in _WORDS:
        return float(value)
    raise ValueError(f"metrics.{name}: expected a number, 'nan', 'inf' or '-inf', got {value!r}")
