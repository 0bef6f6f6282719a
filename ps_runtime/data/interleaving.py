"""The elements of several iterators, some in a row of each in turn."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any


def interleaved(sources: Iterator[Iterator[Any]], cycle_length: int, block_length: int) -> Iterator[Any]:
    """Yield the elements of iterators, `block_length` in a row of each of `cycle_length` that are open, in turn.

    Where one ends, the turn goes to the next; when it comes round again, the next of `sources` is opened there.

    Examples
    --------
    >>> "".join(interleaved(map(iter, ["aaa", "b", "cc"]), 2, 1))
    'abaacc'
    """
    turns: deque[Iterator[Any] | None] = deque()  # None: the place of one that has ended
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
