"""The order of a shuffled epoch whose records are read by number: consecutive windows, each shuffled by itself."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

NUM_WINDOWS_KEPT = 3
"""Cached windows: at the end of an epoch the workers read two; a third saves recomputing for requeued ranges."""


def shuffled_rows(
    seed: int, num_rows: int, buffer_size: int, first_pass: int, start: int, stop: int, *, reshuffles: bool
) -> NDArray[np.int64]:
    """Return the rows at ``[start, stop)`` of consecutive shuffled passes over all rows."""
    places = []
    for number in range(start // num_rows, (stop - 1) // num_rows + 1):
        first = number * num_rows
        epoch = first_pass + number if reshuffles else 0
        size = min(buffer_size, num_rows)
        places.append(_places(seed, epoch, num_rows, size, max(start - first, 0), min(stop - first, num_rows)))
    return places[0] if len(places) == 1 else np.concatenate(places)


def _places(seed: int, epoch: int, num_rows: int, size: int, start: int, stop: int) -> NDArray[np.int64]:
    windows = range(start // size, (stop - 1) // size + 1)
    orders = [shuffled_window(seed, epoch, num_rows, size, window) for window in windows]
    first = windows.start * size
    order = orders[0] if len(orders) == 1 else np.concatenate(orders)
    return order[start - first : stop - first]


@functools.lru_cache(maxsize=NUM_WINDOWS_KEPT)
def shuffled_window(seed: int, epoch: int, num_records: int, buffer_size: int, window: int) -> NDArray[np.int64]:
    """Return the records of a window in the order of `epoch`, as a read-only array."""
    first = window * buffer_size
    size = min(buffer_size, num_records - first)
    order = first + np.random.default_rng([seed, epoch, window]).permutation(size)
    order.flags.writeable = False
    return order
