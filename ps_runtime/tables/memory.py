"""Memory that costs nothing until it is written."""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

__all__ = ["lazy_zeros"]


def lazy_zeros(nbytes: int) -> NDArray[np.uint8]:
    """Return zeros of which the system backs a page when it is first written.

    They begin at a page, so that a row of 64 bytes lies in one cache line; those of `numpy.zeros` begin 16 bytes behind
    one. Pages are small: a huge one would be backed whole for the sake of one row.

    Examples
    --------
    >>> zeros = lazy_zeros(100)
    >>> zeros.shape, zeros.ctypes.data % 4096, int(zeros.max())
    ((100,), 0, 0)
    """
    if nbytes == 0:
        return np.zeros(0, np.uint8)
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
