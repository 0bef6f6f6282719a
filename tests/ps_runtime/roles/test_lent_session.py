"""A session in the hands of a user's loop: who has it, who hears of an error, and who waits for whom."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from psflow.ps_runtime.errors import BrokenPeerError, PsflowError, RoleFailedError, StoppedError
from psflow.ps_runtime.roles.lent_session import LentSession
from psflow.ps_runtime.roles.session import MonitoredSession

SESSION = cast(MonitoredSession, object())


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Have this process take SIGINT as in a terminal: in the background it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def a_role(lent: LentSession, seen: list[Any], then: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """Return a role that lends its session, does `then` in the end, and notes what it sees."""

    def run() -> None:
        try:
            lent.lend(SESSION)
        except BaseException as error:
            seen.append(error)
            raise
        then()
        seen.append("ended")

    return run


def until_interrupted(lent: LentSession) -> None:
    while True:
        lent.check()


def test_the_role_waits_for_the_loop_and_the_loop_for_the_end_of_the_role() -> None:
    lent, seen = LentSession("worker-0"), list[Any]()
    with lent.borrowed(a_role(lent, seen)) as session:
        seen.append("in the loop")
    assert session is SESSION
    assert seen == ["in the loop", "ended"]
    lent.check()


def test_an_error_of_the_loop_is_that_of_the_role() -> None:
    lent, seen, error = LentSession("worker-0"), list[Any](), ZeroDivisionError("as planned")
    with pytest.raises(ZeroDivisionError) as caught, lent.borrowed(a_role(lent, seen)):
        raise error
    assert caught.value is error
    assert seen == [error]
    lent.check()  # nobody was interrupted: the role itself tells of it


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_loop_is_no_error_of_the_role_but_nobody_waits_for_it(kind: type[BaseException]) -> None:
    lent, seen = LentSession("worker-0"), list[Any]()
    with pytest.raises(kind), lent.borrowed(a_role(lent, seen)):
        raise kind
    words = f"^worker-0 was stopped: its loop was interrupted: {kind.__name__}\\(\\)$"
    assert [type(error) for error in seen] == [StoppedError]
    with pytest.raises(StoppedError, match=words):
        lent.check()


def test_a_wait_for_the_end_may_be_interrupted() -> None:
    lent, seen = LentSession("chief-0"), list[Any]()

    def then() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        until_interrupted(lent)

    with pytest.raises(KeyboardInterrupt), lent.borrowed(a_role(lent, seen, then)):
        pass
    assert seen == []


def test_a_wait_for_the_session_may_be_interrupted() -> None:
    lent = LentSession("chief-0")

    def run() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        until_interrupted(lent)

    with pytest.raises(KeyboardInterrupt), lent.borrowed(run):
        raise AssertionError("there is no session")


@pytest.mark.parametrize("seen_by_the_loop", [StoppedError("worker-0", "cancelled"), BrokenPeerError("ps-0", "gone")])
def test_the_loop_hears_why_the_job_has_ended(seen_by_the_loop: PsflowError) -> None:
    lent, cause = LentSession("worker-0"), RoleFailedError("ps-0", "it broke")

    def run() -> None:
        with pytest.raises(PsflowError):
            lent.lend(SESSION)
        raise cause

    with pytest.raises(RoleFailedError) as caught, lent.borrowed(run):
        raise seen_by_the_loop
    assert (caught.value, caught.value.__cause__) == (cause, seen_by_the_loop)


def test_a_loop_does_not_go_on_in_another_life_of_its_role() -> None:
    lent = LentSession("worker-0")

    def run() -> None:
        with pytest.raises(StoppedError, match="cancelled"):
            lent.lend(SESSION)
        lent.lend(SESSION)

    words = "^worker-0 was stopped: the loop .* does not go back to a checkpoint; start all processes again to resume$"
    with pytest.raises(StoppedError, match=words), lent.borrowed(run):
        raise StoppedError("worker-0", "its Dask task was cancelled")


def test_where_nothing_else_has_failed_a_stop_comes_out_as_it_is() -> None:
    lent, error = LentSession("worker-0"), StoppedError("worker-0", "as planned")
    with pytest.raises(StoppedError) as caught, lent.borrowed(a_role(lent, [])):
        raise error
    assert (caught.value, caught.value.__cause__) == (error, None)


def fail() -> None:
    raise RoleFailedError("ps-0", "it broke")


def test_a_role_that_fails_before_it_has_a_session_says_why() -> None:
    with pytest.raises(RoleFailedError, match=r"^ps-0 failed: it broke"), LentSession("chief-0").borrowed(fail):
        raise AssertionError("there is no session")


def test_a_role_that_fails_after_the_loop_says_why() -> None:
    lent = LentSession("chief-0")
    with pytest.raises(RoleFailedError, match=r"^ps-0 failed: it broke"), lent.borrowed(a_role(lent, [], fail)):
        pass


def test_a_role_that_never_had_a_session() -> None:
    words = "^worker-0 was stopped: the job was over before it had begun$"
    with pytest.raises(StoppedError, match=words), LentSession("worker-0").borrowed(lambda: None):
        raise AssertionError("there is no session")
