from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from psflow.ps_runtime.data.window_order import WindowOrder

SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def runs_of(draw: st.DataObject, num_chunks: int) -> list[int]:
    return sorted(draw.draw(st.sets(st.integers(0, num_chunks - 1))) | {0})


def records(order: WindowOrder, sizes: list[int], epoch: int, start: int, stop: int) -> list[int]:
    """Return which records stand there, counted over all chunks."""
    firsts = np.cumsum([0, *sizes])
    found: list[int] = []
    for window, rows in order.parts(epoch, start, stop):
        there = np.concatenate([np.arange(firsts[chunk], firsts[chunk + 1]) for chunk in window.chunks])
        assert len(there) == window.num_records
        found += there[rows].tolist()
    return found


@given(st.data(), SIZES, st.integers(1, 30), st.none() | st.integers(0, 2**40), st.integers(0, 3))
def test_each_record_once_an_epoch_over_any_partition(draw, sizes, window_records, seed, epoch):
    order = WindowOrder(sizes, runs_of(draw, len(sizes)), window_records, seed)
    total = sum(sizes)
    assert order.num_records == total
    cuts = sorted(draw.draw(st.sets(st.integers(0, total))) | {0, total})
    seen = [record for start, stop in pairwise(cuts) for record in records(order, sizes, epoch, start, stop)]
    assert sorted(seen) == list(range(total))
    assert seen == records(order, sizes, epoch, 0, total)
    if seed is None:
        assert seen == list(range(total))


@given(st.data(), SIZES, st.integers(1, 30), st.integers(0, 3))
def test_a_window_holds_whole_runs_only_until_it_is_full(draw, sizes, window_records, epoch):
    runs = runs_of(draw, len(sizes))
    order = WindowOrder(sizes, runs, window_records, 7)
    windows = list(dict.fromkeys(part.window for part in order.parts(epoch, 0, order.num_records)))
    read = [chunk for window in windows for chunk in window.chunks]
    assert all(b == a + 1 or (b in runs and (a + 1 in runs or a + 1 == len(sizes))) for a, b in pairwise(read))
    for window in windows[:-1]:
        assert window.num_records >= window_records > window.num_records - sizes[window.chunks[-1]]


def test_without_a_seed_each_chunk_is_a_window():
    parts = WindowOrder([1, 1, 3], [0, 2], 25, None).parts(0, 0, 5)
    assert [part.window.chunks for part in parts] == [(0,), (1,), (2,)]


def test_an_order_is_of_its_epoch_and_seed():
    def order(seed, epoch):
        return tuple(records(WindowOrder([5] * 20, range(20), 25, seed), [5] * 20, epoch, 0, 100))

    orders = {order(seed, epoch) for seed in (1, 2) for epoch in range(4)}
    assert len(orders) == 8
    assert order(1, 0) == order(1, 0)


def test_the_shuffled_order_is_pinned():
    # a checkpoint holds a position in this order: it must never change
    order = WindowOrder([2, 3, 1, 2], [0, 1, 2, 3], 4, 3)
    assert records(order, [2, 3, 1, 2], 1, 0, 8) == [1, 4, 0, 2, 3, 5, 7, 6]
