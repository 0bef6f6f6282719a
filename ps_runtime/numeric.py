"""Tests values and arrays: numbers, finite arrays, and arrays that autograd traces."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray


def first_non_finite(values: NDArray[Any]) -> tuple[int, float] | None:
    """Return the row and value of the first of `values` that is NaN or infinite; None if there is none.

    Notes
    -----
    BLAS sums the squares in one pass, without a temporary array: NaN or infinite if one of them is. Only then, for the
    squares of large numbers can overflow as well, each value is looked at.

    Examples
    --------
    >>> first_non_finite(np.float32([[1, 2], [3, np.inf]]))
    (1, inf)
    >>> first_non_finite(np.float32([3e38, -3e38])) is None
    True
    """
    if math.isfinite(np.vdot(values, values)):
        return None
    flat = values.reshape(-1)
    found = np.flatnonzero(~np.isfinite(flat))
    if not found.size:
        return None
    first = int(found[0])
    row_size = math.prod(values.shape[1:])
    return first // row_size, float(flat[first])


def read_only(value: NDArray[Any]) -> NDArray[Any]:
    """Return a view that a user cannot write to by mistake, as with ``w += 1``."""
    view = np.asarray(value).view()
    view.flags.writeable = False
    return view


def is_number(value: Any) -> bool:
    """Whether `value` is a real number of Python or numpy, as a float has it; True and False are not."""
    if type(value) is float:
        return True
    if not isinstance(value, Real) or isinstance(value, bool | np.bool):
        return False
    try:
        float(value)
    except OverflowError:  # an int of more than 308 digits
        return False
    return True


def is_of_torch(kind: type) -> bool:
    """Return whether a class is one of torch, or inherits from one, such as a module or a tensor; imports nothing."""
    return any(base.__module__.partition(".")[0] == "torch" for base in kind.__mro__)


def whole_number(value: Any) -> int | None:
    """Return `value` as an int if it is a whole number; None if it is anything else.

    Examples
    --------
    >>> whole_number(1e4), whole_number(5.5), whole_number(True)
    (10000, None, None)
    """
    if not is_number(value) or not math.isfinite(value) or value != int(value):
        return None
    return int(value)


def plain(value: Any) -> Any:
    """Return the number or array inside a traced value; any other value unchanged.

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
    import autograd.numpy  # the import is slow

    return autograd.numpy
