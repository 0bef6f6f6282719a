"""Which integers have been seen, as few intervals: how far the reading of an input has come."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator

__all__ = ["Intervals"]


class Intervals:
    """A set of integers, kept as sorted, disjoint half-open intervals that do not touch each other.

    Notes
    -----
    Not thread-safe. `add` takes O(log n) steps and moves up to n intervals.

    Examples
    --------
    >>> seen = Intervals()
    >>> seen.add(0, 10), seen.add(20, 30), seen.add(5, 22)
    (0, 0, 7)
    >>> list(seen), seen.covered
    ([(0, 30)], 30)
    """

    __slots__ = ("_covered", "_starts", "_stops")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._covered = 0
        for start, stop in pairs:
            self.add(start, stop)

    @property
    def covered(self) -> int:
        """Number of integers in the set."""
        return self._covered

    def add(self, start: int, stop: int) -> int:
        """Add the integers of ``[start, stop)``; return how many of them the set held already.

        Raises
        ------
        ValueError
            If `stop` is less than `start`.
        """
        if stop < start:
            raise ValueError(f"expected start <= stop, got [{start}, {stop})")
        if start == stop:
            return 0
        # intervals [first, last) overlap or touch the new one, and become one with it
        first = bisect.bisect_left(self._stops, start)
        last = bisect.bisect_right(self._starts, stop)
        if last == first + 1 and self._stops[first] == start:  # read on: nearly always so
            self._stops[first] = stop
            self._covered += stop - start
            return 0
        merged = range(first, last)
        already = sum(min(self._stops[i], stop) - max(self._starts[i], start) for i in merged)
        if merged:
            start_of_all, stop_of_all = min(start, self._starts[first]), max(stop, self._stops[last - 1])
        else:
            start_of_all, stop_of_all = start, stop
        self._starts[first:last] = [start_of_all]
        self._stops[first:last] = [stop_of_all]
        self._covered += stop - start - already
        return already

    def __contains__(self, number: int) -> bool:
        index = bisect.bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._stops[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._stops, strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and self._starts == other._starts and self._stops == other._stops

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Intervals({list(self)})"
