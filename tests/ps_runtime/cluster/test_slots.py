"""How many slots a cluster has, where its scheduler says nothing; without a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import asking
from psflow.ps_runtime.cluster.slots import Slots
from psflow.ps_runtime.errors import WaitTimeoutError


def test_a_silent_scheduler_is_named(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asking, "SLICE_SECS", 0.001)
    monkeypatch.setattr(asking, "SILENCE_SECS", 0.05)
    scheduler = SimpleNamespace(address="tls://h:1", ncores=wait_for_ever)
    client: Any = SimpleNamespace(scheduler=scheduler, loop=SimpleNamespace(asyncio_loop=loop))
    with pytest.raises(WaitTimeoutError, match=r"^the Dask scheduler at tls://h:1 did not answer within 0\.05 s: look"):
        Slots(client).count()
