from __future__ import annotations

import math
import signal

import pytest

from psflow.ps_runtime.deadline import RECORDS_SECS, Deadline, StopClock


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("after_secs", "remaining_secs"), [(0.0, 2.0), (1.5, 0.5), (2.0, 0.0), (7.0, 0.0)])
def test_what_is_left_is_never_negative(after_secs: float, remaining_secs: float) -> None:
    clock = Clock()
    deadline = Deadline(2.0, clock)
    clock.now += after_secs
    assert (deadline.remaining_secs, deadline.timeout_secs) == (remaining_secs, 2.0)


def test_it_passes_at_its_moment_and_not_before() -> None:
    clock = Clock()
    deadline = Deadline(2.0, clock)
    clock.now = math.nextafter(102.0, 0.0)
    assert not deadline.has_passed
    clock.now = 102.0
    assert deadline.has_passed


def test_no_timeout_has_passed_at_once() -> None:
    assert Deadline(0.0, Clock()).has_passed


def test_an_infinite_one_never_passes() -> None:
    clock = Clock()
    deadline = Deadline(math.inf, clock)
    clock.now = 1e300
    assert (deadline.has_passed, deadline.remaining_secs) == (False, math.inf)


def test_waits_take_their_time_from_the_first_signal() -> None:
    clock = Clock()
    stop = StopClock(clock)
    stop.arm()
    assert (stop.limited(30.0), stop.left(RECORDS_SECS)) == (30.0, math.inf)
    stop.begin(signal.SIGINT)
    clock.now += 2.0
    stop.begin(signal.SIGTERM)
    assert (stop.received, stop.limited(30.0), stop.limited(1.0)) == (signal.SIGINT, RECORDS_SECS - 2.0, 1.0)
    clock.now += 100.0
    assert stop.limited(30.0) == 0.0


def test_a_process_that_is_not_ours_gives_waits_all_their_time() -> None:
    stop = StopClock(Clock())
    stop.begin(signal.SIGINT)
    assert (stop.received, stop.limited(30.0)) == (None, 30.0)
