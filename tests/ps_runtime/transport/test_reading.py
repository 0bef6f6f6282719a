"""A version is whole or it is not returned."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from ps_runtime.transport import reading
from ps_runtime.transport.arena import Arena
from ps_runtime.transport.reading import ArenaReader, Marks
from ps_runtime.transport.shared_memory import SharedMemory

SMALL = 1000
LARGE = 3 * 1024 * 1024 + 5


class Clock:
    """Time passes when someone sleeps; then others get their turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, secs: float) -> None:
        self.now += secs
        self.on_sleep()


class Ends:
    """An arena, its reader, and the mark between them."""

    def __init__(self, size: int) -> None:
        self.arena = Arena.shared(size)
        memory = self.arena.memory
        assert memory is not None
        self.mark = memoryview(bytearray(8)).cast("q")
        self.reader = ArenaReader(SharedMemory.attach(os.dup(memory.fd), memory.bytes.size, writable=False), self.mark)
        self.into = np.zeros(size, np.uint8)
        self.marks = Marks(size)
        self.marks.add(1, self.mark)
        self.arena.before_change = self.marks.wait

    def publish(self, version: int) -> None:
        self.arena.begin()
        self.arena.bytes[:] = version % 256
        self.arena.end(version)

    def read(self) -> int | None:
        version = self.reader.read(self.into)
        assert version is None or (self.into == version % 256).all()
        return version


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reading, "time", clock)
    return clock


@pytest.fixture(params=[SMALL, LARGE])
def ends(request, clock) -> Iterator[Ends]:
    ends = Ends(request.param)
    yield ends
    ends.reader.close()
    ends.arena.close()


@pytest.fixture
def small(clock) -> Iterator[Ends]:
    ends = Ends(SMALL)
    yield ends
    ends.reader.close()
    ends.arena.close()


@pytest.fixture
def large(clock) -> Iterator[Ends]:
    ends = Ends(LARGE)
    yield ends
    ends.reader.close()
    ends.arena.close()


def test_a_version_is_copied_whole(ends):
    for version in (0, 1, 2**40):
        ends.publish(version)
        assert ends.read() == version
    assert not ends.mark[0] & 1


def test_there_is_no_version_before_the_first(ends):
    assert ends.read() is None


def test_a_reader_waits_for_the_end_of_a_change_but_not_for_ever(ends, clock):
    ends.publish(1)
    ends.arena.begin()
    assert ends.read() is None
    assert 0.02 <= clock.now < 0.1
    clock.on_sleep = lambda: ends.arena.end(1)
    assert ends.read() == 1


@pytest.mark.parametrize(("num_changes", "expected"), [(1, 2), (3, 4), (10_000, None)])
def test_a_torn_copy_is_made_again_but_not_for_ever(small, monkeypatch, num_changes, expected):
    small.publish(1)
    copyto, versions = np.copyto, iter(range(2, 2 + num_changes))

    def copy_and_be_overtaken(into, source):
        copyto(into[: SMALL // 2], source[: SMALL // 2])
        version = next(versions, None)
        if version is not None:
            small.publish(version)
        copyto(into[SMALL // 2 :], source[SMALL // 2 :])

    monkeypatch.setattr(reading.np, "copyto", copy_and_be_overtaken)
    assert small.read() == expected


def test_a_copy_in_vain_ends_early(large, monkeypatch):
    large.publish(1)
    copyto, sizes = np.copyto, []

    def copy_and_be_overtaken_once(into, source):
        sizes.append(source.size)
        copyto(into, source)
        if len(sizes) == 1:
            large.marks.remove(1)  # else the owner would wait for us
            large.publish(2)

    monkeypatch.setattr(reading.np, "copyto", copy_and_be_overtaken_once)
    assert large.read() == 2
    assert sum(sizes) == sizes[0] + LARGE


def test_no_torn_version_comes_out_while_another_process_writes():
    ends = Ends(SMALL)
    child = os.fork()
    if not child:
        for version in itertools.count(1):
            ends.publish(version)
    versions: list[int] = []
    try:
        while len(versions) < 100:
            version = ends.read()
            if version is not None:
                versions.append(version)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        ends.reader.close()
        ends.arena.close()
    assert versions == sorted(versions)


# marks


def test_the_owner_of_a_large_arena_waits_for_its_readers(large, clock):
    large.publish(1)
    other = memoryview(bytearray(8)).cast("q")
    large.marks.add(2, other)
    large.mark[0], other[0] = 3, -5
    turns = iter([large.mark, other])

    def end_reading():
        next(turns)[0] += 1

    clock.on_sleep = end_reading
    large.publish(2)
    assert next(turns, None) is None
    assert large.read() == 2


def test_the_owner_waits_once_and_not_for_ever_for_a_reader_that_stays(large, clock):
    large.mark[0] = 7
    large.publish(1)
    waited = clock.now
    assert 0.002 < waited < 0.01
    large.publish(2)
    assert clock.now == waited
    large.mark[0] = 9
    large.publish(3)
    assert clock.now > waited


def test_a_reader_that_came_later_is_not_waited_for(large, clock):
    large.mark[0] = 1
    clock.on_sleep = lambda: large.mark.__setitem__(0, 3)
    large.publish(1)
    assert clock.now < 0.001


def test_a_reader_that_left_is_forgotten(large, clock):
    large.mark[0] = 1
    large.marks.remove(1)
    large.publish(1)
    assert clock.now == 0.0


def test_a_small_arena_waits_for_nobody(small, clock):
    small.mark[0] = 1
    small.publish(1)
    assert clock.now == 0.0


def test_the_mark_stands_while_the_arena_is_read(large, monkeypatch):
    large.publish(1)
    copyto, marks = np.copyto, []
    monkeypatch.setattr(reading.np, "copyto", lambda *args: (marks.append(large.mark[0]), copyto(*args)))
    large.read()
    large.read()
    assert sorted(set(marks)) == [1, 3]


def test_views_may_outlive_both_ends(small):
    small.publish(1)
    mine, theirs = small.arena.bytes.view(np.float32), small.reader.bytes
    assert not theirs.flags.writeable
    for end in (small.arena, small.reader, small.arena, small.reader):
        end.close()
    mine[:] = 1.0
    assert (theirs.view(np.float32) == 1.0).all()
    assert small.reader.read(small.into) is None
