"""Somebody who hears of events, and waits, logs, or fails meanwhile."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from psflow.ps_runtime.roles import event_dispatch as module
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.event_codec import forwarded_logs
from psflow.ps_runtime.roles.event_dispatch import dispatching
from psflow.ps_runtime.roles.events import Checkpoint, Event, LogMessage
from psflow.ps_runtime.specs.roles import Role, RoleId
from tests.limits import HANG_SECS

EVENTS = [Checkpoint(step, "c", role="chief-0") for step in range(3)]
logger = logging.getLogger("mine")


def test_all_events_are_heard_in_their_order_by_the_end() -> None:
    seen: list[Event] = []
    with dispatching(seen.append) as hear:
        for event in EVENTS:
            hear(event)
    assert seen == EVENTS


def test_nobody_waits_for_who_hears() -> None:
    go_on, seen = threading.Event(), list[Event]()

    def on_event(event: Event) -> None:
        assert go_on.wait(HANG_SECS)
        seen.append(event)

    with dispatching(on_event) as hear:
        for event in EVENTS:
            hear(event)
        assert seen == []
        go_on.set()
    assert seen == EVENTS


def test_who_does_not_come_to_an_end_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAR_SECS", 0.01)
    go_on, is_hearing = threading.Event(), threading.Event()

    def on_event(event: Event) -> None:
        is_hearing.set()
        go_on.wait(HANG_SECS)

    with dispatching(on_event) as hear:
        hear(EVENTS[0])
        assert is_hearing.wait(HANG_SECS)
    go_on.set()
    [said] = caplog.messages
    assert said.startswith("on_event did not take the last events within 0.01 s after the end of the job: about 1 ")


@pytest.mark.parametrize("error", [ValueError("as planned"), SystemExit(1)], ids=lambda error: type(error).__name__)
def test_who_fails_hears_on_and_the_first_error_is_told(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Event] = []

    def on_event(event: Event) -> None:
        seen.append(event)
        raise error

    with dispatching(on_event) as hear:
        for event in EVENTS:
            hear(event)
    assert seen == EVENTS
    assert [(record.getMessage(), record.exc_info is not None) for record in caplog.records] == [
        (f"on_event failed with {EVENTS[0]}; the job goes on, and further errors are counted", True),
        ("on_event failed with 3 events", False),
    ]


def test_who_hears_may_log_and_wait_for_another_thread_that_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    told: list[Any] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Checkpoint):
            logger.warning("not told")
            other = threading.Thread(target=logger.warning, args=["told"], daemon=True)
            other.start()
            other.join(HANG_SECS)
            assert not other.is_alive()

    with dispatching(on_event) as hear:

        def send(event: Event) -> None:
            told.append(event)
            hear(event)

        context = RoleContext(RoleId(Role.WORKER, 0), 1, lambda: None, send)
        with forwarded_logs(context):
            context.emit(EVENTS[0])
            while len(told) < 2:
                context.check()
    assert [type(event) for event in told] == [Checkpoint, LogMessage]
    assert told[1].message == "told"
