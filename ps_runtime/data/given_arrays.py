"""Converts nests of given values, and the bounds of a range, to the arrays of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from psflow.ps_runtime.data.arrays import Array, array_of
from psflow.ps_runtime.errors import InputError


def arrays_of(method: str, tensors: Any) -> Any:
    """Return a nest of array-likes as a nest of arrays; `method` names the caller in error messages.

    Raises
    ------
    InputError
        Lists all values that are not arrays of numbers, booleans or texts.
    """
    faults: list[str] = []
    arrays = _arrays(f"{method}: tensors", tensors, faults)
    if faults:
        raise InputError(tuple(faults))
    return arrays


def _arrays(what: str, nest: Any, faults: list[str]) -> Any:
    if isinstance(nest, tuple):
        return tuple(_arrays(f"{what}[{place}]", part, faults) for place, part in enumerate(nest))
    if isinstance(nest, Mapping):
        return {name: _arrays(f"{what}[{name!r}]", part, faults) for name, part in nest.items()}
    return array_of(what, nest, faults)


def rows_of(array: Array) -> Array:
    """Return a read-only array; InputError if it has no rows."""
    if not array.ndim:
        raise InputError((f"from_tensor_slices: expected arrays with rows on axis 0, got {array.item()!r}",))
    view = array.view()
    view.flags.writeable = False
    return view


def integers(bounds: tuple[Any, ...]) -> Array:
    """Return the integers of ``range(*bounds)``, as int64; InputError if there are none, or too many for memory."""
    called = f"range({', '.join(map(repr, bounds))})"
    if not 1 <= len(bounds) <= 3 or any(isinstance(b, bool) or not isinstance(b, int | np.integer) for b in bounds):
        raise InputError((f"{called}: expected a stop, or a start and a stop, and optionally a step, all ints",))
    if bounds[2:] == (0,):
        raise InputError((f"{called}: expected a step that is not 0",))
    try:
        return np.arange(*bounds, dtype=np.int64)
    except (MemoryError, OverflowError, ValueError):
        raise InputError(
            (
                f"{called} does not fit into memory, or into int64: expected fewer integers; a stream keeps only those "
                f"that are read in memory: from_generator(lambda: {called})",
            )
        ) from None
