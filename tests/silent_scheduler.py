"""A Dask scheduler that is stopped, as its clients and its workers see it: what they ask has no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import scheduler_rpc

__all__ = ["SILENT", "HangingFuture", "SilentScheduler", "be_impatient", "client_of"]

SILENT = r"^the Dask scheduler at tls://h:1 did not answer within 0\.\d+ s: check"


class SilentScheduler:
    """Answers `answered` alone, each with its value, and notes all that it is asked."""

    address = "tls://h:1"

    def __init__(self, **answered: Any) -> None:
        self.asked: list[tuple[str, Any]] = []
        self._answered = answered

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def answer(**given: Any) -> Any:
            self.asked.append((name, given.get("name")))
            if name not in self._answered:
                await asyncio.Event().wait()
            return self._answered[name]

        return answer


class HangingFuture:
    """A Dask future of a task that has ended, whose result nobody hands over."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.Event().wait().__await__()

    def done(self) -> bool:
        return True

    def result(self) -> None:
        pytest.fail("this wait has no end")


class _Node(SimpleNamespace):
    __hash__ = object.__hash__


def client_of(loop: asyncio.AbstractEventLoop, scheduler: Any) -> Any:
    """Return a client, or a Dask worker, that is connected to `scheduler`."""
    return _Node(scheduler=scheduler, status="running", loop=SimpleNamespace(asyncio_loop=loop))


def be_impatient(monkeypatch: pytest.MonkeyPatch, secs: float = 0.05) -> None:
    """Take a scheduler for silent after `secs`; one that answers something in the same test needs more."""
    monkeypatch.setattr(scheduler_rpc, "SLICE_SECS", 0.001)
    monkeypatch.setattr(scheduler_rpc, "SILENCE_SECS", secs)
