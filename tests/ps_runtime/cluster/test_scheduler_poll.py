"""A scheduler that is asked again and again: who says that it is silent, and whose time does not count."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from psflow.ps_runtime.cluster.scheduler_rpc import SILENCE_SECS, WARN_SECS, SchedulerPoll
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from tests.limits import HANG_SECS
from tests.silent_scheduler import client_of

EVERY_SECS = 5.0
SAYS_SO = (
    "the chief at ada:2222 has not answered for 30 s; check whether it is stopped. This process waits for it, and "
    "ends after 300 s"
)


class Scene:
    """A poll, at a time by hand, and a scheduler that answers once it goes on."""

    address = "tls://h:1"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.now = 0.0
        self.num_questions = 0
        self.fault: Exception | None = None
        self.goes_on = asyncio.Event()
        self.poll = self.of("the chief at ada:2222")

    def of(self, who: str | None) -> SchedulerPoll[int]:
        node = client_of(self.loop, self)
        failure = None if who is None else lambda secs: StoppedError("ps-0", f"{who} did not answer for {secs:g} s")
        return SchedulerPoll(node, self.ask, EVERY_SECS, who, failure, lambda: self.now)

    async def ask(self, scheduler: Any) -> int:
        self.num_questions += 1
        if self.fault is not None:
            raise self.fault
        await self.goes_on.wait()
        return self.num_questions

    def let(self, answers: bool) -> None:
        self.loop.call_soon_threadsafe(self.goes_on.set if answers else self.goes_on.clear)

    def settle(self) -> None:
        """Wait until the loop has done what it can."""
        for _ in range(3):
            done = threading.Event()
            self.loop.call_soon_threadsafe(done.set)
            assert done.wait(HANG_SECS)

    def pass_time(self, secs: float) -> list[int]:
        """Look twice a second; return the answers."""
        answers = []
        for _ in range(int(2 * secs)):
            self.now += 0.5
            answers.append(self.poll.look())
            self.settle()
        return [answer for answer in answers if answer is not None]


@pytest.fixture
def scene(loop: asyncio.AbstractEventLoop) -> Iterator[Scene]:
    scene = Scene(loop)
    yield scene
    scene.poll.close()
    scene.settle()


def test_a_scheduler_that_answers_is_asked_now_and_then(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.let(True)
    answers = scene.pass_time(2 * SILENCE_SECS)
    assert answers == list(range(1, len(answers) + 1))
    assert scene.num_questions == pytest.approx(2 * SILENCE_SECS / EVERY_SECS, rel=0.2)
    assert caplog.messages == []


def test_one_that_does_not_answer_is_named_and_given_up(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.pass_time(WARN_SECS - 0.5)
    assert caplog.messages == []
    scene.pass_time(SILENCE_SECS - WARN_SECS)
    assert (caplog.messages, scene.num_questions) == ([SAYS_SO], 1)
    with pytest.raises(StoppedError, match=r"^ps-0 was stopped: the chief at ada:2222 did not answer for 300 s$"):
        scene.pass_time(0.5)


def test_without_another_name_it_is_the_scheduler_at_its_address(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.poll = scene.of(None)
    with pytest.raises(WaitTimeoutError, match=r"^the Dask scheduler at tls://h:1 did not answer within 300 s: check"):
        scene.pass_time(SILENCE_SECS)
    assert caplog.messages == [SAYS_SO.replace("the chief at ada:2222", "the Dask scheduler at tls://h:1")]


def test_with_one_that_goes_on_the_time_starts_anew(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        scene.pass_time(SILENCE_SECS - 10)
        scene.let(True)
        scene.pass_time(2)
        scene.let(False)
    assert caplog.messages == [SAYS_SO, "the chief at ada:2222 answers again"] * 2


def test_the_time_in_which_this_process_was_stopped_does_not_count(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.pass_time(WARN_SECS - 2)
    scene.now += 10 * SILENCE_SECS
    scene.pass_time(0.5)
    assert caplog.messages == []


def test_a_question_that_fails_is_no_answer_and_is_asked_again(scene: Scene) -> None:
    scene.fault = OSError("reset by peer")
    assert scene.pass_time(WARN_SECS) == []
    assert scene.num_questions > 2
    scene.fault = None
    scene.let(True)
    assert scene.pass_time(SILENCE_SECS)


def test_a_question_that_is_under_way_ends_with_the_poll(scene: Scene) -> None:
    scene.poll.close()
    scene.pass_time(EVERY_SECS)
    scene.poll.close()
    scene.poll.close()
    scene.pass_time(0.5)
