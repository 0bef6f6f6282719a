"""A session in the hands of a user's loop: who has it, who hears of an error, and who waits for whom."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from psflow.ps_runtime.errors import BrokenPeerError, InterruptedLoopError, PsflowError, RoleFailedError, StoppedError
from psflow.ps_runtime.roles.session import MonitoredSession
from psflow.ps_runtime.roles.session_handoff import SessionHandoff
from tests.limits import HANG_SECS

SESSION = cast(MonitoredSession, object())
LOST = BrokenPeerError("ps-0", "it ended the connection")


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Have this process take SIGINT as in a terminal: in the background it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def a_role(handoff: SessionHandoff, seen: list[Any], then: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Return a role that lends its session, does `then` in the end, and notes what it sees."""

    def run() -> None:
        try:
            handoff.hand_over(SESSION)
        except BaseException as error:
            seen.append(error)
            raise
        then()
        seen.append("ended")

    return run


@contextmanager
def taken(handoff: SessionHandoff, run: Callable[[], Any]) -> Iterator[MonitoredSession]:
    """Give the first session."""
    with handoff.sessions(run) as next_session:
        yield next_session(None)


def until_interrupted(handoff: SessionHandoff) -> None:
    while True:
        handoff.check()


def test_the_role_waits_for_the_loop_and_the_loop_for_the_end_of_the_role() -> None:
    handoff, seen = SessionHandoff("worker-0"), list[Any]()
    with taken(handoff, a_role(handoff, seen)) as session:
        seen.append("in the loop")
    assert session is SESSION
    assert seen == ["in the loop", "ended"]
    handoff.check()


def test_an_error_of_the_loop_is_that_of_the_role() -> None:
    handoff, seen, error = SessionHandoff("worker-0"), list[Any](), ZeroDivisionError("as planned")
    with pytest.raises(ZeroDivisionError) as caught, taken(handoff, a_role(handoff, seen)):
        raise error
    assert caught.value is error
    assert seen == [error]
    handoff.check()  # nobody was interrupted: the role itself tells of it


@pytest.mark.parametrize(
    ("interruption", "words"),
    [
        (KeyboardInterrupt(), r"it was interrupted \(SIGINT\)"),
        (SystemExit(143), r"it was terminated \(SIGTERM\)"),
        (SystemExit(2), "it exited with 2"),
    ],
)
def test_an_interrupted_loop_is_no_error_of_the_role_but_nobody_waits_for_it(
    interruption: BaseException, words: str
) -> None:
    handoff, seen = SessionHandoff("worker-0"), list[Any]()
    with pytest.raises(type(interruption)), taken(handoff, a_role(handoff, seen)):
        raise interruption
    assert [type(error) for error in seen] == [InterruptedLoopError]
    with pytest.raises(InterruptedLoopError, match=f"^worker-0 was stopped: {words}$"):
        handoff.check()


def test_a_wait_for_the_end_may_be_interrupted() -> None:
    handoff, seen = SessionHandoff("chief-0"), list[Any]()

    def then() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        until_interrupted(handoff)

    with pytest.raises(KeyboardInterrupt), taken(handoff, a_role(handoff, seen, then)):
        pass
    assert seen == []


def test_a_wait_for_the_session_may_be_interrupted() -> None:
    handoff = SessionHandoff("chief-0")

    def run() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        until_interrupted(handoff)

    with pytest.raises(KeyboardInterrupt), taken(handoff, run):
        raise AssertionError("there is no session")


@pytest.mark.parametrize("seen_by_the_loop", [StoppedError("worker-0", "cancelled"), BrokenPeerError("ps-0", "gone")])
def test_the_loop_hears_why_the_job_has_ended(seen_by_the_loop: PsflowError) -> None:
    handoff, cause = SessionHandoff("worker-0"), RoleFailedError("ps-0", "it broke")

    def run() -> None:
        with pytest.raises(PsflowError):
            handoff.hand_over(SESSION)
        raise cause

    with pytest.raises(RoleFailedError) as caught, taken(handoff, run):
        raise seen_by_the_loop
    assert (caught.value, caught.value.__cause__) == (cause, seen_by_the_loop)


def test_a_loop_that_has_broken_off_does_not_go_back() -> None:
    handoff = SessionHandoff("worker-0")

    def run() -> None:
        with pytest.raises(StoppedError, match="cancelled"):
            handoff.hand_over(SESSION)
        handoff.hand_over(SESSION)

    words = "^worker-0 was stopped: its loop had ended when training rolled back to .*; start all processes again to "
    with pytest.raises(StoppedError, match=words), taken(handoff, run):
        raise StoppedError("worker-0", "its Dask task was cancelled")


def test_where_nothing_else_has_failed_a_stop_comes_out_as_it_is() -> None:
    handoff, error = SessionHandoff("worker-0"), StoppedError("worker-0", "as planned")
    with pytest.raises(StoppedError) as caught, taken(handoff, a_role(handoff, [])):
        raise error
    assert (caught.value, caught.value.__cause__) == (error, None)


def fail() -> None:
    raise RoleFailedError("ps-0", "it broke")


def test_a_role_that_fails_before_it_has_a_session_says_why() -> None:
    with pytest.raises(RoleFailedError, match=r"^ps-0 failed: it broke"), taken(SessionHandoff("chief-0"), fail):
        raise AssertionError("there is no session")


def test_a_role_that_fails_after_the_loop_says_why() -> None:
    handoff = SessionHandoff("chief-0")
    with pytest.raises(RoleFailedError, match=r"^ps-0 failed: it broke"), taken(handoff, a_role(handoff, [], fail)):
        pass


def test_a_role_that_never_had_a_session() -> None:
    words = "^worker-0 was stopped: the job was over before it had started$"
    with pytest.raises(StoppedError, match=words), taken(SessionHandoff("worker-0"), lambda: None):
        raise AssertionError("there is no session")


def roll_back(next_session: Any) -> None:
    next_session(None)
    next_session(LOST)


def test_each_life_lends_its_session(caplog):
    handoff, ends = SessionHandoff("worker-0"), []

    def run():
        for session in ("first", "second"):
            try:
                handoff.hand_over(session)
            except BrokenPeerError as error:
                ends.append(error)

    with handoff.sessions(run) as next_session:
        assert next_session(None) == "first"
        assert next_session(LOST) == "second"
    assert ends == [LOST]
    assert caplog.messages == [f"worker-0: its session ended, and its loop waits for the next one: {LOST}"]
    assert all(isinstance(value, str) for record in caplog.records for value in record.args)  # no error, and its memory


def test_what_the_job_has_failed_of_is_raised_in_place_of_what_broke():
    handoff = SessionHandoff("worker-0")

    def run():
        with pytest.raises(BrokenPeerError):
            handoff.hand_over("first")
        raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause"), handoff.sessions(run) as next_session:
        roll_back(next_session)


def test_a_job_that_ends_without_a_further_life():
    handoff = SessionHandoff("worker-0")

    def run():
        with pytest.raises(BrokenPeerError):
            handoff.hand_over("first")

    words = r"^worker-0 was stopped: the job was over before its loop had rolled back to the last checkpoint$"
    with pytest.raises(StoppedError, match=words), handoff.sessions(run) as next_session:
        roll_back(next_session)


def test_a_loop_that_has_ended_does_not_go_back():
    handoff = SessionHandoff("chief-0")

    def run():
        handoff.hand_over("first")
        handoff.hand_over("second")

    words = (
        r"^chief-0 was stopped: its loop had ended when training rolled back to the last .*; start all processes again"
    )
    with pytest.raises(StoppedError, match=words), handoff.sessions(run) as next_session:
        next_session(None)


def test_a_session_that_nobody_has_taken_is_given_back() -> None:
    handoff, seen = SessionHandoff("worker-0"), list[Any]()
    is_handed_over = threading.Event()
    handoff._next.add_done_callback(lambda future: is_handed_over.set())

    def interrupt() -> None:
        assert is_handed_over.wait(HANG_SECS)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), handoff.sessions(a_role(handoff, seen)):
        interrupt()
    assert [str(error) for error in seen] == ["worker-0 was stopped: it was interrupted (SIGINT)"]
