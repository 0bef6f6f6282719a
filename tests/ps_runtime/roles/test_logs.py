"""Logging in the process of a role."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles import event_codec as module
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.event_codec import forwarded_logs
from psflow.ps_runtime.roles.event_dispatch import without_events
from psflow.ps_runtime.roles.events import Checkpoint, LogMessage
from psflow.ps_runtime.specs.roles import Role, RoleId
from tests.limits import HANG_SECS

logger = logging.getLogger("my_model")
Make = Callable[[int], RoleContext]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    return []


@pytest.fixture
def make(told: list[Any]) -> Make:
    return lambda index: RoleContext(RoleId(Role.WORKER, index), 1, lambda: None, told.append)


def test_what_a_role_logs_is_told_with_its_name(told: list[Any], make: Make) -> None:
    with forwarded_logs(make(1)):
        logger.info("step %d", 3)
        logger.debug("not told")
        logging.getLogger("distributed.worker").warning("not told")
    logger.warning("not told")
    assert [(type(e), e.role, e.level, e.logger, e.message) for e in told] == [
        (LogMessage, "worker-1", logging.INFO, "my_model", "step 3")
    ]
    assert logging.getLogger().level == logging.WARNING


def test_what_is_logged_of_an_event_is_not_told_again(told: list[Any], make: Make) -> None:
    hear = without_events()(Attempt.log_event)
    with forwarded_logs(make(1)):
        hear(LogMessage(30, "mine", "x", role="chief-0"))
        hear(Checkpoint(1, "c", role="chief-0"))
        with without_events():
            hear(Checkpoint(2, "c", role="chief-0"))
            logger.warning("not told")
    assert told == []


def test_a_thread_that_hears_of_an_event_does_not_wait_for_one_that_has_a_record_sent(make: Make) -> None:
    """The one has the lock of the context and would wait for that of the handler, the other way round to the other."""
    lock = module._process_logs.lock
    assert lock is not None
    hearing = threading.Thread(target=without_events()(Attempt.log_event), args=[Checkpoint(1, "c")])
    with forwarded_logs(make(0)):
        with lock:
            hearing.start()
            hearing.join(HANG_SECS)
            has_ended = not hearing.is_alive()
        hearing.join()
    assert has_ended


def test_what_is_logged_while_an_event_is_sent_is_not_told(told: list[Any]) -> None:
    """As the finalizer of an object does that Python happens to collect then."""

    def send(event: Any) -> None:
        told.append(event)
        logger.warning("not told")

    context = RoleContext(RoleId(Role.WORKER, 0), 1, lambda: None, send)
    with forwarded_logs(context):
        context.emit(Checkpoint(1, "c"))
    assert [type(event) for event in told] == [Checkpoint]


def test_a_job_without_a_flow_logs_its_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Attempt.log_event(LogMessage(logging.WARNING, "mine", "x", role="worker-0"))
    Attempt.log_event(Checkpoint(300, "c/300", 0.5, 1.0, role="chief-0"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "worker-0: mine: x"),
        ("INFO", "Saving checkpoints for 300 into c/300."),
    ]


def test_traceback_is_told(told: list[Any], make: Make) -> None:
    with forwarded_logs(make(0)):
        try:
            raise ValueError("no such thing")
        except ValueError:
            logger.exception("it failed")
    assert told[0].message.startswith("it failed\nTraceback")
    assert told[0].message.endswith("ValueError: no such thing")


def test_two_roles_of_a_process(told: list[Any], make: Make) -> None:
    def second() -> None:
        with forwarded_logs(make(1)):
            logger.info("of the second")

    with forwarded_logs(make(0)):
        for target in (second, lambda: logger.info("of a helper")):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        logger.info("of the first")
    assert [(e.role, e.message) for e in told] == [
        ("worker-1", "of the second"),
        ("worker-0", "of a helper"),
        ("worker-0", "of the first"),
    ]


def test_a_flood_is_cut_and_counted(told: list[Any], make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    role = module._RoleLog(make(0), lambda: now[0])
    record = logging.makeLogRecord({"levelno": logging.INFO, "name": "m"})
    for number in range(1000):
        role.take(record, str(number))
    assert len(told) == module.BURST
    now[0] += 1
    role.take(record, "again")
    expected = ["800 log records were dropped: a role may log 20 per second", "again"]
    assert [e.message for e in told[-2:]] == expected


def test_a_long_record_is_cut(told: list[Any], make: Make) -> None:
    with forwarded_logs(make(0)):
        logger.info("x" * 100_000)
    assert len(told[0].message) == module.MAX_LOG_CHARS


def test_who_logs_does_not_fail_because_nobody_can_be_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    context = make(0)
    context.send = lambda event: 1 / 0  # type: ignore[assignment,return-value]
    with forwarded_logs(context):
        logger.info("x")


def test_a_role_whose_last_record_cannot_be_told_leaves_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BURST", 0)
    context, root = make(0), logging.getLogger()
    context.send = lambda event: 1 / 0  # type: ignore[assignment,return-value]
    with pytest.raises(ZeroDivisionError), forwarded_logs(context):
        logger.info("left out")
    assert module._process_logs not in root.handlers
    assert root.level == logging.WARNING


def test_a_level_that_a_user_sets_meanwhile_stays(make: Make) -> None:
    with forwarded_logs(make(0)):
        logging.getLogger().setLevel(logging.ERROR)
    assert logging.getLogger().level == logging.ERROR
