"""The barrier of tasks on a cluster, with events of this process."""

from __future__ import annotations

import logging
import re
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster import event_barrier
from psflow.ps_runtime.cluster.event_barrier import NUM_PHASES, EventBarrier, arrival, ended
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId
from tests.limits import HANG_SECS

CHIEF, FIRST, SECOND = ROLES = [RoleId.parse(name) for name in ("chief-0", "worker-0", "worker-1")]


class Events(defaultdict[str, threading.Event]):
    """Events by name."""

    def __init__(self) -> None:
        super().__init__(threading.Event)

    def of(self, name: str) -> threading.Event:
        return self[name]


@pytest.fixture
def events() -> Events:
    return Events()


def barrier_of(events: Events, role: RoleId, has_ended: tuple[RoleId, ...] = (), check=never_stop) -> EventBarrier:
    for one in has_ended:
        events[ended(one)].set()
    event: Any = events.of
    return EventBarrier(event, role, [one for one in ROLES if one != role], check)


def test_nobody_is_ahead_however_often_they_meet(events: Events) -> None:
    num_rounds, arrived, behind = 40, dict.fromkeys(ROLES, 0), []

    def meet(role: RoleId) -> None:
        barrier = barrier_of(events, role)
        for count in range(1, num_rounds + 1):
            arrived[role] = count
            barrier.wait(HANG_SECS)
            behind.extend(other for other, number in arrived.items() if number not in (count, count + 1))

    with ThreadPoolExecutor(len(ROLES)) as pool:
        list(pool.map(meet, ROLES))
    assert behind == []
    assert arrived == dict.fromkeys(ROLES, num_rounds)
    assert {arrival(role, phase) for role in ROLES for phase in range(NUM_PHASES)} == set(events) - set(
        map(ended, ROLES)
    )


def test_who_comes_late_does_not_find_who_was_there_before(events: Events) -> None:
    """The chief is fast: its events of the last three calls are never taken for those of the next one."""
    barrier = barrier_of(events, CHIEF)
    for count in range(7):
        for role in (FIRST, SECOND):
            events[arrival(role, count % 3)].set()
            events[arrival(role, (count + 1) % 3)].clear()
        barrier.wait(HANG_SECS)
        assert not events[arrival(CHIEF, (count + 1) % 3)].is_set()
        assert events[arrival(CHIEF, count % 3)].is_set()


def test_who_does_not_come_is_named(events: Events) -> None:
    events[arrival(FIRST, 0)].set()
    barrier = barrier_of(events, CHIEF)
    words = (
        "worker-1 did not reach the barrier within 0.01 s: chief-0 is in its call number 1; have all workers "
        "call it as often"
    )
    with pytest.raises(WaitTimeoutError, match=f"^{re.escape(words)}$"):
        barrier.wait(0.01)


def test_a_call_that_timed_out_does_not_count(events: Events) -> None:
    chief, others = barrier_of(events, CHIEF), [barrier_of(events, role) for role in (FIRST, SECOND)]
    with pytest.raises(WaitTimeoutError, match=r"^worker-0, worker-1 did not reach"):
        chief.wait(0.01)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: one.wait(HANG_SECS), others))
    chief.wait(HANG_SECS)
    with pytest.raises(WaitTimeoutError, match=r"^chief-0, worker-1 did not reach .* call number 2; have"):
        others[0].wait(0.01)


def test_who_has_ended_is_not_waited_for(events: Events) -> None:
    words = (
        "chief-0 was stopped: worker-1 ended before the barrier in its call number 1; have "
        "all workers call wait_for_other_workers as often"
    )
    with pytest.raises(StoppedError, match=f"^{re.escape(words)}$"):
        barrier_of(events, CHIEF, has_ended=(SECOND,)).wait(HANG_SECS)


def test_who_has_come_and_ended_was_there(events: Events) -> None:
    for role in (FIRST, SECOND):
        events[arrival(role, 0)].set()
    barrier_of(events, CHIEF, has_ended=(FIRST, SECOND)).wait(HANG_SECS)


def test_the_wait_ends_as_check_says_and_tells_for_whom(
    events: Events, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_barrier, "SLICE_SECS", 0.001)
    monkeypatch.setattr(event_barrier, "SAY_AFTER_SECS", 0.0)
    num_looks = 0

    def check() -> None:
        nonlocal num_looks
        num_looks += 1
        if num_looks == 3:
            raise StoppedError("chief-0", "its Dask task was cancelled")

    with caplog.at_level(logging.WARNING), pytest.raises(StoppedError, match="cancelled"):
        barrier_of(events, CHIEF, check=check).wait(HANG_SECS)
    assert [record.getMessage() for record in caplog.records] == [
        "chief-0 waits up to 120 s more for worker-0, worker-1"
    ] * 2
