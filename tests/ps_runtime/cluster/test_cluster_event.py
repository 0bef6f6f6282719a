"""Events of a scheduler that answers, or is silent; without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from psflow.ps_runtime.cluster.event_barrier import ClusterEvent
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from tests.limits import HANG_SECS
from tests.silent_scheduler import SILENT, SilentScheduler, be_impatient, client_of

CALLS: list[Callable[[ClusterEvent], Any]] = [
    ClusterEvent.set,
    ClusterEvent.clear,
    ClusterEvent.is_set,
    lambda event: event.wait(HANG_SECS),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_silent_scheduler_is_named_and_its_owner_is_heard_meanwhile(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, call: Callable[[ClusterEvent], Any]
) -> None:
    be_impatient(monkeypatch)
    checked: list[None] = []
    with pytest.raises(WaitTimeoutError, match=SILENT):
        call(ClusterEvent(client_of(loop, SilentScheduler()), "t", lambda: checked.append(None), "begun"))
    assert checked


@pytest.mark.parametrize("call", CALLS)
def test_who_is_to_end_waits_for_no_event(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, call: Callable[[ClusterEvent], Any]
) -> None:
    def check() -> None:
        raise StoppedError("ps-0", "its Dask task was cancelled")

    be_impatient(monkeypatch)
    with pytest.raises(StoppedError, match="its Dask task was cancelled"):
        call(ClusterEvent(client_of(loop, SilentScheduler()), "t", check, "begun"))


def test_the_answer_comes_back(loop: asyncio.AbstractEventLoop) -> None:
    scheduler = SilentScheduler(event_set=None, event_clear=None, event_is_set=False, event_wait=True)
    event = ClusterEvent(client_of(loop, scheduler), "t", pytest.fail, "begun")
    event.set()
    event.clear()
    assert event.is_set() is False
    assert event.wait(HANG_SECS) is True
    assert scheduler.asked == [(f"event_{what}", "t-begun") for what in ("set", "clear", "is_set", "wait")]
