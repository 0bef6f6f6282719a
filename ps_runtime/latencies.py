"""How long something takes, as percentiles: a histogram of fixed size, cheap enough for each step."""

from __future__ import annotations

import math
from collections.abc import Sequence

PERCENTILES = (50, 95, 99)
PER_OCTAVE = 8
"""Buckets from a duration to twice that: each is 9 % longer than the one before."""
LEAST_SECS = 1e-6
NUM_BUCKETS = PER_OCTAVE * 33 + 1
"""Up to 2.4 hours; the first one has what is shorter than `LEAST_SECS` too, the last one what is longer."""


class Latencies:
    """Counts durations in buckets that are evenly spaced on a logarithmic scale.

    Notes
    -----
    A percentile is at most 9 % too long, and never too short. `add` takes less than a microsecond. `counts` may be
    read in another thread; else not thread-safe.

    Examples
    --------
    >>> latencies = Latencies()
    >>> for secs in (0.001, 0.001, 0.001, 0.080):
    ...     latencies.add(secs)
    >>> latencies.to_facts()
    {'count': 4, 'p50_ms': 1.02, 'p95_ms': 85.0, 'p99_ms': 85.0}
    """

    __slots__ = ("_counts",)

    def __init__(self, counts: Sequence[int] = ()) -> None:
        self._counts = list(counts) or [0] * NUM_BUCKETS

    def add(self, secs: float) -> None:
        """Count a duration in seconds, from 0."""
        index = int(PER_OCTAVE * math.log2(secs / LEAST_SECS)) if secs > LEAST_SECS else 0
        self._counts[index if index < NUM_BUCKETS else -1] += 1

    @property
    def counts(self) -> tuple[int, ...]:
        """How many durations each bucket has."""
        return tuple(self._counts)

    @property
    def num_added(self) -> int:
        """How many durations there are."""
        return sum(self._counts)

    def since(self, counts: Sequence[int]) -> Latencies:
        """Return those that were added since `counts` were these."""
        return Latencies([now - before for now, before in zip(self._counts, counts, strict=True)])

    def percentile_ms(self, percent: float) -> float:
        """Return how many milliseconds so many percent of the durations take at most, from 0 to 100.

        Raises
        ------
        ValueError
            If there are no durations.
        """
        wanted, seen = percent / 100 * self.num_added, 0
        for index, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return float(LEAST_SECS * 1e3 * 2 ** ((index + 1) / PER_OCTAVE))
        raise ValueError("no duration was added, so there are no percentiles")

    def to_facts(self) -> dict[str, float]:
        """Return `count` and the percentiles in milliseconds, to three digits; of no durations the count alone."""
        facts: dict[str, float] = {"count": self.num_added}
        if facts["count"]:
            facts |= {f"p{p}_ms": float(f"{self.percentile_ms(p):.3g}") for p in PERCENTILES}
        return facts
