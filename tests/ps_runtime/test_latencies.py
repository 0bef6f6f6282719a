"""Percentiles of durations, held against those of numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psflow.ps_runtime.latencies import NUM_BUCKETS, PERCENTILES, Latencies

SECS = st.floats(1e-5, 5000)


def of(durations: list[float]) -> Latencies:
    latencies = Latencies()
    for secs in durations:
        latencies.add(secs)
    return latencies


@given(st.lists(SECS, min_size=1, max_size=50), st.sampled_from([0, *PERCENTILES, 100]))
def test_a_percentile_is_at_most_one_bucket_too_long(durations: list[float], percent: float) -> None:
    exact_ms = 1e3 * float(np.percentile(durations, percent, method="inverted_cdf"))
    assert exact_ms * 0.999 <= of(durations).percentile_ms(percent) <= exact_ms * 1.1


@pytest.mark.parametrize(("secs", "percentile_ms"), [(0.0, 1e-3), (1e-9, 1e-3), (1e9, 1e3 * 1e-6 * 2**33)])
def test_what_is_very_short_or_very_long_is_counted_too(secs: float, percentile_ms: float) -> None:
    assert of([secs]).percentile_ms(50) == pytest.approx(percentile_ms, rel=0.1)


def test_memory_does_not_grow_with_what_is_counted() -> None:
    assert len(of([10.0**k for k in range(-12, 12)] * 10).counts) == NUM_BUCKETS


@given(st.lists(SECS, max_size=5), st.lists(SECS, max_size=5))
def test_those_since_some_counts_are_those_that_came_after_them(before: list[float], after: list[float]) -> None:
    latencies = of(before)
    counts = latencies.counts
    for secs in after:
        latencies.add(secs)
    assert latencies.since(counts).counts == of(after).counts


def test_of_nothing_there_are_no_percentiles() -> None:
    assert Latencies().to_facts() == {"count": 0}
    with pytest.raises(ValueError, match="no duration was added"):
        Latencies().percentile_ms(50)
