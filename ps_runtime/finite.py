"""Are these numbers? Weights and gradients with a NaN or an infinity among them spoil all that is made of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["first_non_finite"]


def first_non_finite(values: NDArray[Any]) -> tuple[int, float] | None:
    """Return the row of the first of `values` that is NaN or infinite, and what it is; None if there is none.

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
