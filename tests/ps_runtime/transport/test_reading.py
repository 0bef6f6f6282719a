"""A version is whole or it is not returned."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.transport import reading
from psflow.ps_runtime.transport.reading import MARK, copy_secs
from psflow.ps_runtime.transport.shared_memory import SharedMemory
from tests.ps_runtime.transport.arena_ends import LARGE, SMALL, Clock, Ends, opened


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(reading, "time", clock)
    monkeypatch.setattr(reading, "Deadline", partial(Deadline, clock=clock.monotonic))
    return clock


@pytest.fixture(params=[SMALL, LARGE])
def ends(request, clock) -> Iterator[Ends]:
    with opened(request.param) as ends:
        yield ends


@pytest.fixture
def small(clock) -> Iterator[Ends]:
    with opened(SMALL) as ends:
        yield ends


def test_a_version_is_copied_whole(ends):
    for version in (0, 1, 2**40):
        ends.publish(version)
        assert ends.read() == version
    assert not ends.mark[0] & 1


def test_there_is_no_version_before_the_first(ends):
    assert ends.read() is None


def test_a_reader_waits_for_the_end_of_a_change_but_not_for_ever(ends, clock):
    ends.publish(1)
    ends.arena.begin(2)
    assert ends.read() is None
    timeout_secs = 10 * copy_secs(ends.into.size)
    assert timeout_secs <= clock.now < 1.5 * timeout_secs
    ends.arena.bytes[:] = 2
    clock.on_sleep = ends.arena.end
    assert ends.read() == 2


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


@pytest.mark.process
@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_no_torn_version_comes_out_while_another_process_writes(size):
    ends = Ends(size)
    ends.mark = ends.reader._mark = SharedMemory.create(4096).bytes[:32].data.cast("q")
    ends.marks.add(1, ends.mark)
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


def test_a_small_arena_waits_for_nobody(small, clock):
    small.mark[MARK] = 1
    small.publish(1)
    assert clock.now == 0.0


def test_views_may_outlive_both_ends(small):
    small.publish(1)
    mine, theirs = small.arena.bytes.view(np.float32), small.reader.bytes
    assert not theirs.flags.writeable
    for end in (small.arena, small.reader, small.arena, small.reader):
        end.close()
    mine[:] = 1.0
    assert (theirs.view(np.float32) == 1.0).all()
    assert small.reader.read(small.into) is None
