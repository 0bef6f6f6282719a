"""A chief that does not answer: who says so, when it is given up, and whose time does not count."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from psflow.ps_runtime.cluster.chief_watch import ASK_SECS, GIVE_UP_SECS, WARN_SECS, ChiefWatch
from psflow.ps_runtime.errors import StoppedError

SAYS_SO = (
    "the chief at ada:2222 has not answered for 30 s; check whether it is stopped. This process waits for it, and "
    "ends after 300 s"
)


@dataclass
class Scene:
    """A watch, at a time that stands still, and a chief that answers once it `goes_on`."""

    now: float = 0.0
    num_questions: int = 0
    fault: Exception | None = None
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    watch: ChiefWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = ChiefWatch("ps-0", "the chief at ada:2222", self.ask, lambda: self.now)

    async def ask(self) -> None:
        self.num_questions += 1
        if self.fault is not None:
            raise self.fault
        await self.goes_on.wait()

    async def pass_time(self, secs: float) -> None:
        """Look twice a second."""
        for _ in range(int(2 * secs)):
            self.now += 0.5
            await asyncio.sleep(0)
            self.watch.look()


def test_a_chief_that_answers_is_asked_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> int:
        (scene := Scene()).goes_on.set()
        await scene.pass_time(10 * GIVE_UP_SECS)
        return scene.num_questions

    assert asyncio.run(scene()) == pytest.approx(10 * GIVE_UP_SECS / ASK_SECS, rel=0.2)
    assert caplog.messages == []


def test_a_chief_that_does_not_answer_is_named_and_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        scene = Scene()
        await scene.pass_time(WARN_SECS - 0.5)
        assert caplog.messages == []
        await scene.pass_time(GIVE_UP_SECS - WARN_SECS)
        assert (caplog.messages, scene.num_questions) == ([SAYS_SO], 1)
        await scene.pass_time(0.5)

    words = (
        r"^ps-0 was stopped: the chief at ada:2222 did not answer for 300 s; check whether it is stopped, and end it; "
        "then start all processes again to resume$"
    )
    with pytest.raises(StoppedError, match=words):
        asyncio.run(scene())


def test_with_a_chief_that_goes_on_the_time_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        scene = Scene()
        for _ in range(2):
            await scene.pass_time(GIVE_UP_SECS - 3)
            scene.goes_on.set()
            await scene.pass_time(2)
            scene.goes_on.clear()

    asyncio.run(scene())
    assert caplog.messages == [SAYS_SO, "the chief at ada:2222 answers again"] * 2


def test_the_time_in_which_this_process_was_stopped_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        scene = Scene()
        await scene.pass_time(WARN_SECS - 2)
        scene.now += 10 * GIVE_UP_SECS
        await scene.pass_time(0.5)

    asyncio.run(scene())
    assert caplog.messages == []


def test_a_question_that_fails_is_no_answer_and_is_asked_again() -> None:
    async def scene() -> None:
        scene = Scene(fault=OSError("reset by peer"))
        await scene.pass_time(WARN_SECS)
        assert scene.num_questions > 2
        scene.fault = None
        scene.goes_on.set()
        await scene.pass_time(GIVE_UP_SECS)

    asyncio.run(scene())


def test_a_question_that_is_under_way_ends_with_the_watch() -> None:
    async def scene() -> None:
        scene = Scene()
        scene.watch.close()
        await scene.pass_time(ASK_SECS)
        scene.watch.close()
        scene.watch.close()
        await scene.pass_time(0.5)

    asyncio.run(scene())
