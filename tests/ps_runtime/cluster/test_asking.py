"""Questions to a scheduler that answers, is silent, or is gone; without a cluster."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.comm import connect

from psflow.ps_runtime.cluster import scheduler_rpc as module
from psflow.ps_runtime.cluster.own_security import own_security
from psflow.ps_runtime.cluster.scheduler_rpc import ask
from psflow.ps_runtime.errors import RoleFailedError, StoppedError, WaitTimeoutError
from tests.free_ports import free_port

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
    words = r"^the Dask scheduler at tls://h:1 did not answer within 0.002 s: check its log and its host, restart it"
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


GONE = "failed: the connection to it broke; check its log, restart it, then run the same command again"


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


class Silent:
    """Asks a scheduler over a connection of its own, for which Dask waits for a moment; counts how often."""

    def __init__(self, port: int) -> None:
        self.address = f"tls://127.0.0.1:{port}"
        self.num_asked = 0
        self._given = own_security().get_connection_args("client")

    async def __call__(self, scheduler: Any) -> str:
        self.num_asked += 1
        await connect(self.address, timeout=0.05, **self._given)
        return "an answer"


def test_a_connection_that_a_stopped_scheduler_does_not_take_up_is_silence(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SLICE_SECS", 0.01)

    def check() -> None:
        if question.num_asked > 2:
            raise StoppedError("chief-0", "this was often enough")

    with socket.create_server(("127.0.0.1", 0)) as stopped:  # its host takes connections, and nobody says a word
        question = Silent(stopped.getsockname()[1])
        with pytest.raises(StoppedError, match="often enough"):
            ask(node_of(loop), question, check)


def test_a_scheduler_that_goes_on_answers_then(loop: asyncio.AbstractEventLoop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        question = Silent(stopped.getsockname()[1])

        async def ask_twice(scheduler: Any) -> str:
            return await question(scheduler) if question.num_asked < 2 else "at last"

        assert ask(node_of(loop), ask_twice, lambda: None) == "at last"


def test_a_connection_that_is_refused_says_that_the_scheduler_is_gone(loop: asyncio.AbstractEventLoop) -> None:
    question = Silent(free_port())
    with pytest.raises(RoleFailedError, match=f"^the Dask scheduler at tls://h:1 {GONE}$"):
        ask(node_of(loop), question, lambda: None)
