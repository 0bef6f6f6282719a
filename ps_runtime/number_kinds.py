"""Which values count as numbers, wherever a user may give one."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

__all__ = ["is_number", "whole_number"]


def is_number(value: Any) -> bool:
    """Whether `value` is a real number of Python or numpy, as a float has it; True and False are none."""
    if type(value) is float:
        return True
    if not isinstance(value, Real) or isinstance(value, bool | np.bool):
        return False
    try:
        float(value)
    except OverflowError:  # an int of more than 308 digits
        return False
    return True


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
