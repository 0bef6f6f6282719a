"""A large arena is read and changed at the same time, and each copy is one version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.transport import reading
from psflow.ps_runtime.transport.reading import DONE, MARK, PROMISED, SINCE, copy_secs
from tests.ps_runtime.transport.arena_ends import CHUNK, LARGE, Clock, Ends, opened


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reading, "time", clock)
    monkeypatch.setattr(reading, "Deadline", partial(Deadline, clock=clock.monotonic))
    return clock


@pytest.fixture
def large(clock) -> Iterator[Ends]:
    with opened(LARGE) as ends:
        yield ends


def meanwhile(monkeypatch, actions: list[Callable[[], None]]) -> list[int]:
    """Do an action after each copy of a chunk, as long as there are any; return the sizes of the copies."""
    copyto, sizes = np.copyto, []

    def copy(into, source):
        sizes.append(source.size)
        copyto(into, source)
        if actions:
            actions.pop(0)()

    monkeypatch.setattr(reading.np, "copyto", copy)
    return sizes


def nothing() -> None:
    pass


@pytest.mark.parametrize("num_changes", [1, 2])
def test_changes_stay_behind_who_is_reading(large, clock, monkeypatch, num_changes):
    large.publish(1)
    changes = [lambda: large.change_until(CHUNK, 2), lambda: large.change_until(2 * CHUNK, 3)]
    sizes = meanwhile(monkeypatch, [nothing, *changes[:num_changes]])
    assert large.read() == 1
    assert sizes == [CHUNK, CHUNK, CHUNK, 5]
    assert clock.now == 0.0


def test_a_change_that_would_overtake_waits_and_then_breaks_its_promise(large, clock, monkeypatch):
    large.publish(1)
    sizes = meanwhile(monkeypatch, [nothing, lambda: large.publish(2)])
    assert large.read() == 2
    assert sum(sizes) == 2 * CHUNK + LARGE
    assert copy_secs(LARGE) <= clock.now < 1.5 * copy_secs(LARGE)


def test_a_reader_follows_the_change_under_way(large, clock):
    large.publish(1)
    large.arena.begin(2)
    parts = iter(range(0, LARGE, CHUNK))
    naps: list[int] = []

    def change_on() -> None:
        start = next(parts, None)
        naps.append(large.mark[DONE])
        if start is None:
            large.arena.end()
        else:
            large.arena.advance(start, min(start + CHUNK, LARGE))
            large.arena.bytes[start : start + CHUNK] = 2

    clock.on_sleep = change_on
    assert large.read() == 2
    assert naps == [0, 0, CHUNK, 2 * CHUNK, 3 * CHUNK]  # it is one part behind all the while


def test_a_change_that_did_not_see_the_reader_makes_it_begin_again(large, monkeypatch):
    large.publish(1)
    sizes = meanwhile(monkeypatch, [lambda: large.publish_unseen(2)])
    assert large.read() == 2
    assert sum(sizes) == CHUNK + LARGE


def test_a_promise_of_a_later_change_does_not_hide_an_earlier_one(large, monkeypatch):
    large.publish(1)

    def overtake_and_then_promise() -> None:
        large.publish_unseen(2)
        large.arena.begin(2)
        assert large.mark[PROMISED] == large.mark[MARK]
        large.arena.end()

    sizes = meanwhile(monkeypatch, [overtake_and_then_promise])
    assert large.read() == 2
    assert sum(sizes) == CHUNK + LARGE


def test_a_change_under_way_that_did_not_see_the_reader_makes_it_begin_again(large, clock, monkeypatch):
    large.publish(1)

    def begin_unseen() -> None:
        large.marks.remove(1)
        large.arena.begin(2)
        large.marks.add(1, large.mark)

    def change_on() -> None:
        large.arena.advance(0, LARGE)
        large.arena.bytes[:] = 2
        large.arena.end()

    clock.on_sleep = change_on
    sizes = meanwhile(monkeypatch, [begin_unseen])
    assert large.read() == 2
    assert sum(sizes) == CHUNK + LARGE


def test_the_next_change_stays_behind_who_followed_the_last(large, clock, monkeypatch):
    large.publish(1)
    large.arena.begin(2)

    def end_and_begin() -> None:
        large.arena.bytes[:] = 2
        large.arena.end()
        large.arena.begin(3)
        assert large.mark[PROMISED] == large.mark[MARK]

    def change_a_part() -> None:
        large.arena.advance(0, CHUNK)
        large.arena.bytes[:CHUNK] = 3
        large.arena.end()

    clock.on_sleep = end_and_begin
    sizes = meanwhile(monkeypatch, [nothing, change_a_part])
    assert large.read() == 2
    assert len(sizes) == 4


def test_a_promise_is_not_put_together_of_two(large, monkeypatch):
    """The first change promised an earlier mark, as its counter was not to be seen yet; the next one promises this."""
    large.publish(1)
    large.mark[SINCE], large.mark[PROMISED] = 3, -7

    class Mark:
        """Another change makes its promise between two looks at what the owner wrote."""

        def __init__(self) -> None:
            self.is_between = False

        def __getitem__(self, index: int) -> int:
            value = int(large.mark[index])
            if index in (SINCE, PROMISED) and self.is_between:
                self.is_between = False
                large.arena.begin(2)
                large.arena.end()
            return value

        def __setitem__(self, index: int, value: int) -> None:
            large.mark[index] = value

    def overtake() -> None:
        large.publish_unseen(2)
        large.reader._mark.is_between = True

    large.reader._mark = Mark()
    sizes = meanwhile(monkeypatch, [overtake])
    assert large.read() == 2
    assert sum(sizes) == CHUNK + LARGE


def test_who_saw_a_change_before_that_saw_its_mark_does_not_wait_for_it(large, clock):
    large.publish(1)
    large.arena.readers = None
    large.arena.begin(2)
    large.arena.readers = large.marks

    def promise() -> None:
        large.marks.begin(3)
        clock.on_sleep = change_on

    def change_on() -> None:
        large.arena.advance(0, LARGE)
        large.arena.bytes[:] = 2
        large.arena.end()

    clock.on_sleep = promise
    assert large.read() == 2
    assert not large.marks._overdue


def test_a_change_that_comes_as_the_mark_is_set_makes_the_reader_begin_again(large, monkeypatch):
    large.publish(1)

    class Mark:
        def __getitem__(self, index: int) -> int:
            return int(large.mark[index])

        def __setitem__(self, index: int, value: int) -> None:
            large.mark[index] = value
            if (index, value) == (MARK, 1):
                large.publish_unseen(2)

    large.reader._mark = Mark()
    sizes = meanwhile(monkeypatch, [])
    assert large.read() == 2
    assert sum(sizes) == LARGE


def test_the_owner_waits_for_all_who_are_reading(large, clock):
    large.publish(1)
    other = memoryview(bytearray(32)).cast("q")
    large.marks.add(2, other)
    large.mark[MARK], other[MARK] = 3, -5
    turns = iter([large.mark, other])

    def end_reading() -> None:
        next(turns)[MARK] += 1

    clock.on_sleep = end_reading
    large.publish(2)
    assert next(turns, None) is None
    assert large.read() == 2


def test_the_owner_waits_once_and_not_for_ever_for_a_reader_that_stays(large, clock):
    large.mark[MARK] = 7
    large.publish(1)
    waited = clock.now
    assert copy_secs(LARGE) <= waited < 1.5 * copy_secs(LARGE)
    assert large.mark[PROMISED] != 7
    large.publish(2)
    assert clock.now == waited
    large.mark[MARK] = 9
    large.publish(3)
    assert clock.now > waited


def test_a_reader_that_came_later_is_not_waited_for(large, clock):
    large.mark[MARK] = 1
    clock.on_sleep = lambda: large.mark.__setitem__(MARK, 3)
    large.publish(1)
    assert clock.now < 0.001


def test_a_reader_that_left_is_forgotten(large, clock):
    large.mark[MARK] = 1
    large.marks.remove(1)
    large.publish(1)
    assert clock.now == 0.0


def test_the_mark_stands_while_the_arena_is_read(large, monkeypatch):
    large.publish(1)
    numbers: list[int] = []
    meanwhile(monkeypatch, [lambda: numbers.append(large.mark[MARK])] * 8)
    large.read()
    large.read()
    assert numbers == [1, 1, 1, 1, 3, 3, 3, 3]
    assert large.mark[MARK] == 4
