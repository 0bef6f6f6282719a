"""Interleaves the elements of several iterators in blocks."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any


def interleaved(sources: Iterator[Iterator[Any]], cycle_length: int, block_length: int) -> Iterator[Any]:
    """Yield `block_length` elements at a time of each of `cycle_length` open iterators, in turn.

    If one ends, the next one takes its turn; in the next cycle the next of `sources` replaces it.

    Examples
    --------
    >>> "".join(interleaved(map(iter, ["aaa", "b", "cc"]), 2, 1))
    'abaacc'
    """
    turns: deque[Iterator[Any] | None] = deque()  # None: an iterator that has ended
    num_new = cycle_length
    while num_new or turns:
        if num_new:
            source = next(sources, None)
            num_new = 0 if source is None else num_new - 1
        else:
            source = turns.popleft() or next(sources, None)
        if source is None:
            continue
        num_taken = 0
        for element in itertools.islice(source, block_length):
            num_taken += 1
            yield element
        turns.append(source if num_taken == block_length else None)
