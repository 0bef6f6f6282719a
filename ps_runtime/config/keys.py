"""Dotted keys of nested values, such as ``train.max_steps``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["flat"]


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of everything that is no mapping, and of mappings that are empty.

    Examples
    --------
    >>> dict(flat({"train": {"max_steps": 3}, "params": {}, "units": [64]}))
    {'train.max_steps': 3, 'params': {}, 'units': [64]}
    """
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
