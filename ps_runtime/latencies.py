"""Measures durations as percentiles, in a histogram of fixed size, cheap enough for each step."""

from __future__ import annotations

import math
from collections.abc import Sequence

PERCENTILES = (50, 95, 99)
PER_OCTAVE = 8
"""Buckets from a duration to twice that: each is 9 % longer than the one before."""
LEAST_SECS = 1e-6
NUM_BUCKETS = PER_OCTAVE * 33 + 1
"""Up to 2.4 hours; the first bucket also counts durations below `LEAST_SECS`, the last one longer ones."""


class Latencies:
    """Counts durations in buckets that are evenly spaced on a logarithmic scale.

    Notes
    -----
    A percentile is at most 9 % too high, and never too low. `add` takes less than a microsecond. `counts` may be
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
        """The number of durations in each bucket."""
        return tuple(self._counts)

    @property
    def num_added(self) -> int:
        """The number of durations."""
        return sum(self._counts)

    def since(self, counts: Sequence[int]) -> Latencies:
        """Return the durations added since `counts` had this value."""
        return Latencies([now - before for now, before in zip(self._counts, counts, strict=True)])

    def percentile_ms(self, percent: float) -> float:
        """Return the percentile of the durations in milliseconds; `percent` is from 0 to 100.

        Raises ValueError if there are no durations.
        """
        wanted, seen = percent / 100 * self.num_added, 0
        for index, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return float(LEAST_SECS * 1e3 * 2 ** ((index + 1) / PER_OCTAVE))
        raise ValueError("no duration was added, so there are no percentiles")

    def to_facts(self) -> dict[str, float]:
        """Return `count` and the percentiles in milliseconds, to three digits; without durations only the count."""
        facts: dict[str, float] = {"count": self.num_added}
        if facts["count"]:
            facts |= {f"p{p}_ms": float(f"{self.percentile_ms(p):.3g}") for p in PERCENTILES}
        return facts
