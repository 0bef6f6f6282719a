"""The order in which epochs read records that do not fit into memory: random chunks, shuffled within windows."""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NUM_EPOCHS_KEPT = 2
"""Epochs whose order is cached: around the end of an epoch the workers read two."""


class Window(NamedTuple):
    """Runs of chunks that are in memory together."""

    epoch: int
    number: int
    start: int
    num_records: int
    chunks: tuple[int, ...]


class WindowRows(NamedTuple):
    """Some records of a window: `rows` of its concatenated chunks."""

    window: Window
    rows: slice | NDArray[np.int64]


class WindowOrder:
    """Locates the records of an epoch.

    Without a seed the order is that of the chunks, and each chunk is a window. With one, each epoch takes the runs of
    chunks in another order, joins as many into a window as reach `window_records`, and shuffles the records of each
    window. So a record may come at any position of an epoch, beside records of as many runs as a window holds.

    Notes
    -----
    Deterministic given the seed, and immutable: every process computes the same order.
    """

    def __init__(
        self, chunk_records: Sequence[int], runs: Sequence[int], window_records: int, seed: int | None
    ) -> None:
        self._chunk_records = np.asarray(chunk_records, np.int64)
        self._runs = [range(a, b) for a, b in zip(runs, [*runs[1:], len(chunk_records)], strict=True)]
        self._window_records = window_records
        self._seed = seed
        self.num_records = int(self._chunk_records.sum())
        self._windows = functools.lru_cache(maxsize=NUM_EPOCHS_KEPT)(self._windows_of)
        self._shuffled = functools.lru_cache(maxsize=NUM_EPOCHS_KEPT)(self._permutation)

    def parts(self, epoch: int, start: int, stop: int) -> list[WindowRows]:
        """Return the parts of windows with records ``[start, stop)`` of `epoch`: at least one, in order."""
        windows, starts = self._windows(0 if self._seed is None else epoch)
        parts = []
        for number in range(bisect_right(starts, start) - 1, bisect_left(starts, stop)):
            window = windows[number]
            low, high = max(start, window.start) - window.start, min(stop - window.start, window.num_records)
            rows, place = slice(low, high), (window.epoch, window.number, window.num_records)
            parts.append(WindowRows(window, rows if self._seed is None else self._shuffled(place)[rows]))
        return parts

    def _windows_of(self, epoch: int) -> tuple[list[Window], list[int]]:
        """Return the windows of an epoch, and the start of each."""
        order = range(len(self._runs)) if self._seed is None else self._rng(epoch).permutation(len(self._runs))
        target = 1 if self._seed is None else self._window_records
        windows: list[Window] = []
        chunks: list[int] = []
        start = size = 0
        for run in order:
            for chunk in self._runs[run]:
                chunks.append(chunk)
                size += int(self._chunk_records[chunk])
                if size >= target:
                    windows.append(Window(epoch, len(windows), start, size, tuple(chunks)))
                    start, size, chunks = start + size, 0, []
        if chunks:
            windows.append(Window(epoch, len(windows), start, size, tuple(chunks)))
        return windows, [window.start for window in windows]

    def _permutation(self, place: tuple[int, int, int]) -> NDArray[np.int64]:
        epoch, number, num_records = place
        return self._rng(epoch, number).permutation(num_records)

    def _rng(self, *place: int) -> np.random.Generator:
        return np.random.default_rng([self._seed or 0, *place])
