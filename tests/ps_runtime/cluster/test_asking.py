"""Questions to a scheduler that answers, is silent, or is gone; without a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import asking as module
from psflow.ps_runtime.cluster.asking import ask
from psflow.ps_runtime.errors import RoleFailedError, StoppedError, WaitTimeoutError

SCHEDULER = SimpleNamespace(address="tls://h:1")


def node_of(loop: asyncio.AbstractEventLoop, scheduler: Any = SCHEDULER) -> Any:
    return SimpleNamespace(loop=SimpleNamespace(asyncio_loop=loop), scheduler=scheduler)


async def never(scheduler: Any) -> None:
    await asyncio.Event().wait()


def test_an_answer_comes_back(loop: asyncio.AbstractEventLoop) -> None:
    async def address(scheduler: Any) -> str:
        return str(scheduler.address)

    assert ask(node_of(loop), address, pytest.fail) == "tls://h:1"


def test_a_scheduler_that_is_silent_is_named(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_SECS", 0.001)
    monkeypatch.setattr(module, "SILENCE_SECS", 0.002)
    words = (
        r"^the Dask scheduler at tls://h:1 did not answer within 0.002 s: look at its log and its host, start it again"
    )
    with pytest.raises(WaitTimeoutError, match=words):
        ask(node_of(loop), never, lambda: None)


def test_who_is_to_end_waits_for_no_answer(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_SECS", 0.001)
    checks = iter([None, None, StoppedError("ps-0", "its Dask task was cancelled")])

    def check() -> None:
        if (error := next(checks)) is not None:
            raise error

    with pytest.raises(StoppedError, match="its Dask task was cancelled"):
        ask(node_of(loop), never, check)


GONE = "failed: the connection to it broke; look at its log, start it, then run the same command again"


def test_without_a_connection_the_scheduler_is_gone(loop: asyncio.AbstractEventLoop) -> None:
    async def broken(scheduler: Any) -> None:
        raise OSError("it broke")

    async def cancelled(scheduler: Any) -> None:
        raise asyncio.CancelledError

    for question in (broken, cancelled):
        with pytest.raises(RoleFailedError, match=f"^the Dask scheduler at tls://h:1 {GONE}$"):
            ask(node_of(loop), question, pytest.fail)
    with pytest.raises(RoleFailedError, match=f"^the Dask scheduler {GONE}$"):
        ask(node_of(loop, None), never, pytest.fail)
