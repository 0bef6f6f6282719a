"""Whether a role may still write, as the scheduler says; without a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import scheduler_rpc
from psflow.ps_runtime.cluster.fencing import SchedulerFence
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError

KEY = "psflow-j-1-ps-0-0"
SLOT = "tcp://h:1"


def not_connected() -> OSError:
    """Return what Dask raises after 30 s of a scheduler that is stopped."""
    error = OSError("Timed out trying to connect to tls://h:1 after 30 s")
    error.__cause__ = TimeoutError()
    return error


class Scheduler:
    """Says what runs where, or an answer that is set; the first `num_silent` questions do not reach it."""

    def __init__(self) -> None:
        self.answer: Any = {SLOT: [KEY]}
        self.num_silent = 0

    async def processing(self, workers: list[str]) -> Any:
        assert workers == [SLOT]
        if self.num_silent:
            self.num_silent -= 1
            raise not_connected()
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def fence_of(
    loop: asyncio.AbstractEventLoop, answer: Any, check: Any = lambda: None, num_silent: int = 0
) -> SchedulerFence:
    scheduler = Scheduler()
    scheduler.answer, scheduler.num_silent = answer, num_silent
    worker: Any = SimpleNamespace(scheduler=scheduler, contact_address=SLOT, loop=SimpleNamespace(asyncio_loop=loop))
    return SchedulerFence(worker, KEY, "ps-0", check)


def test_a_role_whose_task_is_known_may_write(loop: asyncio.AbstractEventLoop) -> None:
    fence_of(loop, {SLOT: ["another", KEY]})()


def test_a_role_waits_for_a_scheduler_that_was_stopped(loop: asyncio.AbstractEventLoop) -> None:
    fence_of(loop, {SLOT: [KEY]}, num_silent=2)()
    with pytest.raises(StoppedError, match=r"^ps-0 was stopped: it was lost meanwhile"):
        fence_of(loop, {SLOT: ["another"]}, num_silent=2)()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            {SLOT: ["another"]},
            r"^ps-0 was stopped: it was lost meanwhile, and restarts elsewhere; it writes nothing",
        ),
        (KeyError(SLOT), r"^ps-0 was stopped: it was lost meanwhile, and restarts elsewhere; it writes nothing"),
        (OSError("it broke"), r"^ps-0 was stopped: the Dask scheduler is gone: it broke$"),
    ],
)
def test_a_role_that_is_anothers_by_now_may_not(loop: asyncio.AbstractEventLoop, answer: Any, words: str) -> None:
    with pytest.raises(StoppedError, match=words):
        fence_of(loop, answer)()


def test_a_scheduler_that_is_silent_lets_nothing_through(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_rpc, "SLICE_SECS", 0.001)
    monkeypatch.setattr(scheduler_rpc, "SILENCE_SECS", 0.002)
    words = r"^the Dask scheduler did not confirm that ps-0 still runs within 0.002 s: check its log and its host"
    with pytest.raises(WaitTimeoutError, match=words):
        fence_of(loop, None)()


def test_a_role_that_is_to_end_waits_for_no_scheduler(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_rpc, "SLICE_SECS", 0.001)
    checks = iter([None, None, StoppedError("ps-0", "its Dask task was cancelled")])

    def check() -> None:
        if (error := next(checks)) is not None:
            raise error

    with pytest.raises(StoppedError, match="its Dask task was cancelled"):
        fence_of(loop, None, check)()
