"""Memory that costs nothing until it is written."""

from __future__ import annotations

import mmap
import platform
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

__all__ = ["lazy_zeros", "row_memory"]

_HUGE_NBYTES, _HUGE_ROWS = 2 << 30, 2 << 20
"""Rows that are at most so many, and take at most so much, are backed by huge pages."""

_NO_RESERVE = 0x4000 if (platform.system(), platform.machine()) in {("Linux", "x86_64"), ("Linux", "aarch64")} else 0
"""MAP_NORESERVE, which Python does not name: a mapping may be larger than the memory that there is."""


def lazy_zeros(nbytes: int, *, huge_pages: bool = False) -> NDArray[np.uint8]:
    """Return zeros of which the system backs a page when it is first written.

    They begin at a page, so that a row of 64 bytes lies in one cache line; those of `numpy.zeros` begin 16 bytes behind
    one.

    Examples
    --------
    >>> zeros = lazy_zeros(100)
    >>> zeros.shape, zeros.ctypes.data % 4096, int(zeros.max())
    ((100,), 0, 0)
    """
    if nbytes == 0:
        return np.zeros(0, np.uint8)
    mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    if huge_pages and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapping, np.uint8)


def row_memory(num_rows: int, row_nbytes: int) -> NDArray[np.uint8]:
    """Return zeros for the rows of a table: in huge pages if the table is small enough to be backed whole.

    Rows at random find their pages faster so. But a huge page is backed for the sake of one row: in a large table,
    and in one of many rows, most of which may never be touched, pages are small.
    """
    nbytes = num_rows * row_nbytes
    return lazy_zeros(nbytes, huge_pages=num_rows <= _HUGE_ROWS and nbytes <= _HUGE_NBYTES)
