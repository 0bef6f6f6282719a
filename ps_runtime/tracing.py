"""Values that autograd traces, told from plain ones."""

from __future__ import annotations

from typing import Any

__all__ = ["numpy_of", "plain"]


def plain(value: Any) -> Any:
    """Return the number or array inside a traced value; anything else as it is.

    Works without autograd imported, so that metrics and losses need not know it.
    """
    while hasattr(value, "_value") and hasattr(value, "_trace"):
        value = value._value
    return value


def numpy_of(value: Any) -> Any:
    """Return the module numpy, or that of autograd where it traces `value`."""
    if plain(value) is value:
        import numpy

        return numpy
    import autograd.numpy  # costs an import of its own

    return autograd.numpy
