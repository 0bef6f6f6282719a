"""Functions that a cluster calls whose scheduler is stopped meanwhile: nobody waits for it for ever; without one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster import called_task, role_calls
from psflow.ps_runtime.cluster.called_task import Surroundings
from psflow.ps_runtime.cluster.cluster_event import ClusterEvent
from psflow.ps_runtime.cluster.memory_kills import TOPIC
from psflow.ps_runtime.cluster.role_calls import RoleCall, RoleCalls
from psflow.ps_runtime.cluster.scheduler_rpc import put
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId
from tests.limits import HANG_SECS
from tests.silent_scheduler import SILENT, SilentScheduler, be_impatient, client_of

CHIEF, WORKER = (RoleId.parse(name) for name in ("chief-0", "worker-0"))


def running_on(loop: asyncio.AbstractEventLoop, cancelled: list[Any]) -> RoleCalls:
    """Return calls of which that of the chief is under way, and that note which futures are cancelled."""

    async def cancel(futures: list[Any], force: bool) -> None:
        cancelled.extend(futures)

    client = client_of(loop, SilentScheduler())
    client.cancel, client.unsubscribe_topic = cancel, [TOPIC].remove
    running = RoleCalls(client, [RoleCall(CHIEF, "localhost:1", never_stop)])
    future: Any = "a future"
    running._futures[CHIEF] = future
    running._presence.missing({"tls://h:2"})  # which is a question without an answer
    return running


def test_a_silent_scheduler_hides_no_error_of_the_block(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(role_calls, "END_TIMEOUT_SECS", 0.0)
    monkeypatch.setattr(role_calls, "ANSWER_SECS", 0.05)
    cancelled: list[Any] = []
    running = running_on(loop, cancelled)
    with caplog.at_level(logging.WARNING, "psflow"):
        running.__exit__(None, None, None)
    assert cancelled == ["a future"]
    assert running._presence._answer is None
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psflow")] == [
        "the Dask scheduler does not answer, so psflow does not know whether chief-0 ended"
    ]


async def nothing(scheduler: Any) -> None:
    """Ask a scheduler for nothing."""


def test_who_does_not_wait_for_the_end_has_cancelled_all(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*given: Any) -> None:
        raise KeyboardInterrupt

    cancelled: list[Any] = []
    running = running_on(loop, cancelled)
    with monkeypatch.context() as patch:
        patch.setattr(concurrent.futures, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            running.__exit__(None, None, None)
    put(running._client, nothing).result(HANG_SECS)  # the loop has run by then what was submitted before
    assert cancelled == ["a future"]
    assert running._presence._answer is None


def test_the_owner_names_a_silent_scheduler_while_tasks_begin(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch)
    running = running_on(loop, [])
    future: Any = SimpleNamespace(status="pending")
    running._futures[CHIEF] = future
    with pytest.raises(WaitTimeoutError, match=SILENT):
        running._await_start()
    running._presence.close()


def call(monkeypatch: pytest.MonkeyPatch, worker: Any, check: Any, others: list[RoleId]) -> None:
    """Have a Dask worker call a function that comes to the barrier."""

    def meet(surroundings: Surroundings) -> None:
        assert surroundings.barrier is not None
        surroundings.barrier.wait(HANG_SECS)

    be_impatient(monkeypatch, HANG_SECS)
    monkeypatch.setattr(called_task.Liveness, "of_this_task", lambda role: SimpleNamespace(check=check))
    monkeypatch.setattr(called_task, "get_worker", lambda: worker)
    called_task.call_role(cloudpickle.dumps(meet), CHIEF, "calls", others)


def test_a_task_that_is_to_end_waits_for_no_scheduler(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> None:
        raise StoppedError("chief-0", "its Dask task was cancelled")

    with pytest.raises(StoppedError, match="its Dask task was cancelled"):
        call(monkeypatch, client_of(loop, SilentScheduler()), check, [])


class OnlyOpen(SilentScheduler):
    """Has the event that the owner sets, and is silent as soon as somebody waits."""

    def __getattr__(self, name: str) -> Any:
        async def is_set(name: str) -> bool:
            return name == "calls-open"

        return is_set if name == "event_is_set" else super().__getattr__(name)


def test_who_waits_at_the_barrier_names_a_silent_scheduler(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[None] = []
    scheduler = OnlyOpen(event_set=None, event_clear=None)
    wait = ClusterEvent.wait

    def wait_impatiently(event: ClusterEvent, timeout_secs: float) -> bool:
        with monkeypatch.context() as patch:
            be_impatient(patch)
            return wait(event, timeout_secs)

    monkeypatch.setattr(ClusterEvent, "wait", wait_impatiently)
    with pytest.raises(WaitTimeoutError, match=SILENT):
        call(monkeypatch, client_of(loop, scheduler), lambda: checked.append(None), [WORKER])
    assert checked
    assert [name for what, name in scheduler.asked if what == "event_wait"] == ["calls-worker-0-at-barrier-0"]
    assert scheduler.asked[-2:] == [("event_set", "calls-chief-0-ended"), ("event_clear", "calls-chief-0-running")]
