from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psflow.ps_runtime.server.input_position import Intervals

ranges = st.tuples(st.integers(-20, 60), st.integers(0, 15)).map(lambda r: (r[0], r[0] + r[1]))


@given(st.lists(ranges, max_size=30))
def test_it_agrees_with_a_plain_set(added: list[tuple[int, int]]) -> None:
    intervals, model = Intervals(), set[int]()
    for start, stop in added:
        new = set(range(start, stop))
        assert intervals.add(start, stop) == len(model & new)
        model |= new
        pairs = list(intervals)
        assert {i for pair in pairs for i in range(*pair)} == model
        assert intervals.covered == len(model)
        assert all(start < stop for start, stop in pairs)
        assert all(left[1] < right[0] for left, right in pairwise(pairs))


@given(st.lists(ranges, max_size=15))
def test_its_pairs_make_it_again(added: list[tuple[int, int]]) -> None:
    intervals = Intervals(added)
    assert Intervals(list(intervals)) == intervals
    assert Intervals(reversed(added)) == intervals


def test_touching_intervals_become_one() -> None:
    assert list(Intervals([(0, 5), (10, 15), (5, 10)])) == [(0, 15)]


def test_nothing_is_added_by_an_empty_interval() -> None:
    intervals = Intervals([(0, 4), (6, 8)])
    assert intervals.add(5, 5) == 0
    assert list(intervals) == [(0, 4), (6, 8)]


def test_a_reversed_interval_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected start <= stop, got \[3, 1\)"):
        Intervals().add(3, 1)
