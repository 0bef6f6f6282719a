"""Lost roles that look for a slot while the scheduler is silent, or gone; without a cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import scheduler_rpc
from psflow.ps_runtime.cluster.restarter import Restarter
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.ps_runtime.specs.roles import job_roles
from tests.failing_slots import lose_slots

PS, CHIEF, WORKER = job_roles(1, 1, evaluator=False)


class Scheduler:
    """Answers to nothing, or has its connection broken."""

    address = "tls://h:1"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def answer(self, **_: Any) -> Any:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()

    semaphore_register = semaphore_acquire = identity = processing = answer


def restarting_of(loop: asyncio.AbstractEventLoop, scheduler: Scheduler) -> Restarter:
    """Return what looks for a slot for a worker that is lost."""
    supervisor = Supervisor([PS, CHIEF, WORKER], 1, 3)
    for role in (PS, CHIEF, WORKER):
        supervisor.place(role, str(role))
        supervisor.start(role, 1)
        supervisor.listen(role, 1)
    lose_slots(supervisor, {str(WORKER)})
    client: Any = SimpleNamespace(
        scheduler=scheduler, loop=SimpleNamespace(asyncio_loop=loop, add_callback=lambda callback: None)
    )
    return Restarter(client, supervisor, pytest.fail, None)


@pytest.mark.parametrize("has_lock", [False, True])
def test_a_silent_scheduler_ends_the_search_by_its_name_and_the_owner_is_heard_meanwhile(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, has_lock: bool
) -> None:
    monkeypatch.setattr(scheduler_rpc, "SLICE_SECS", 0.001)
    monkeypatch.setattr(scheduler_rpc, "SILENCE_SECS", 0.05)
    checked: list[None] = []
    with pytest.raises(
        WaitTimeoutError, match=r"^the Dask scheduler at tls://h:1 did not answer within 0\.05 s: check"
    ):
        restarting_of(loop, Scheduler()).place(lambda: checked.append(None), has_lock=has_lock)
    assert checked


@pytest.mark.parametrize("has_lock", [False, True])
def test_a_connection_that_breaks_is_no_reason_to_end_the_search(
    loop: asyncio.AbstractEventLoop, has_lock: bool
) -> None:
    restarting_of(loop, Scheduler(OSError("it broke"))).place(pytest.fail, has_lock=has_lock)
