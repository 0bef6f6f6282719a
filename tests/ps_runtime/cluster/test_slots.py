"""How many slots a cluster has, where its scheduler says nothing; without a cluster."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import scheduler_rpc, slots
from psflow.ps_runtime.cluster.slots import Slots
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import WaitTimeoutError


def test_a_silent_scheduler_is_named(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(scheduler_rpc, "SLICE_SECS", 0.001)
    monkeypatch.setattr(scheduler_rpc, "SILENCE_SECS", 0.05)
    scheduler = SimpleNamespace(address="tls://h:1", ncores=wait_for_ever)
    client: Any = SimpleNamespace(scheduler=scheduler, loop=SimpleNamespace(asyncio_loop=loop))
    with pytest.raises(
        WaitTimeoutError, match=r"^the Dask scheduler at tls://h:1 did not answer within 0\.05 s: check"
    ):
        Slots(client).count()


def test_workers_may_come_back_however_long_nobody_has_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now, answers = [0.0], iter([{"tls://h:2": 1}, {}, {"tls://h:2": 1}, {}, {}])
    monkeypatch.setattr(slots, "Deadline", partial(Deadline, clock=lambda: now[0]))
    monkeypatch.setattr(slots, "ask", lambda *given: next(answers))
    client: Any = SimpleNamespace()
    found = Slots(client)
    for secs, count in [(0.0, 1), (3600.0, 0), (3605.0, 1), (7200.0, 0)]:
        now[0] = secs
        assert found.count() == count
    now[0] = 7200.0 + slots.NO_WORKERS_SECS
    with pytest.raises(WaitTimeoutError, match=r"^the Dask cluster did not have any worker within 30 s$"):
        found.count()
