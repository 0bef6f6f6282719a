"""Values that autograd traces, told from plain ones."""

from __future__ import annotations

from typing import Any

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Return the number or array inside a traced value; anything else as it is.

    Works without autograd imported, so that metrics and losses need not know it.
    """
    while hasattr(value, "_value") and hasattr(value, "_trace"):
        value = value._value
    return value
