"""Copies of whole arrays, by several processors where one alone would keep training waiting."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGE_BYTES", "NUM_THREADS", "copy_arrays"]

LARGE_BYTES = 8 << 20
"""From here on threads are worth their start, a tenth of a millisecond."""

NUM_THREADS = min(4, os.cpu_count() or 1)
"""One processor does not use all the bandwidth of memory, a few do."""


def copy_arrays(pairs: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> None:
    """Copy the second array of each pair into the first. Blocks; all processors take part in what is large."""
    num_parts = NUM_THREADS if sum(source.nbytes for _, source in pairs) >= LARGE_BYTES else 1

    def copy(part: int) -> None:
        for target, source in pairs:
            start, stop = (len(source) * edge // num_parts for edge in (part, part + 1))
            np.copyto(target[start:stop], source[start:stop])

    if num_parts == 1:
        copy(0)
        return
    with ThreadPoolExecutor(num_parts, thread_name_prefix="psflow-copy") as threads:
        list(threads.map(copy, range(num_parts)))
