"""The arrays that a data set is made of, from a nest of what somebody gives, or from the bounds of a range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from psflow.ps_runtime.data.arrays import Array, array_of
from psflow.ps_runtime.errors import InputError


def arrays_of(method: str, tensors: Any) -> Any:
    """Return a nest of array-likes as one of arrays; `method` is what error texts call who was given them.

    Raises
    ------
    InputError
        With all that are no array of numbers, booleans or texts.
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
    """Return an array that cannot be written to; InputError if it has no rows."""
    if not array.ndim:
        raise InputError((f"from_tensor_slices: expected arrays with rows on axis 0, got {array.item()!r}",))
    view = array.view()
    view.flags.writeable = False
    return view


def integers(bounds: tuple[Any, ...]) -> Array:
    """Return the integers of ``range(*bounds)``, as int64; InputError if there is none such, or not in this memory."""
    called = f"range({', '.join(map(repr, bounds))})"
    if not 1 <= len(bounds) <= 3 or any(isinstance(b, bool) or not isinstance(b, int | np.integer) for b in bounds):
        raise InputError((f"{called}: expected a stop, or a start, a stop and maybe a step, all of them ints",))
    if bounds[2:] == (0,):
        raise InputError((f"{called}: expected a step that is not 0",))
    try:
        return np.arange(*bounds, dtype=np.int64)
    except (MemoryError, OverflowError, ValueError):
        raise InputError(
            (
                f"{called} does not fit into memory, or into int64: expected fewer integers; of a stream only those "
                f"that are read are in memory: from_generator(lambda: {called})",
            )
        ) from None
