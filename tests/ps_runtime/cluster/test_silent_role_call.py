"""Functions that a cluster calls whose scheduler is stopped meanwhile: nobody waits for it for ever; without one."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster import called_task, role_calls, role_tasks
from psflow.ps_runtime.cluster.called_task import Surroundings
from psflow.ps_runtime.cluster.event_barrier import ClusterEvent
from psflow.ps_runtime.cluster.membership import MEMORY_KILLS
from psflow.ps_runtime.cluster.role_calls import RoleCall, RoleCalls
from psflow.ps_runtime.cluster.role_tasks import RoleTasks
from psflow.ps_runtime.errors import StoppedError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId
from tests.limits import HANG_SECS
from tests.silent_scheduler import SILENT, SilentScheduler, be_impatient, client_of

CHIEF, WORKER = (RoleId.parse(name) for name in ("chief-0", "worker-0"))


def running_on(loop: asyncio.AbstractEventLoop, cancelled: list[Any]) -> RoleCalls:
    """Return calls of which that of the chief is under way, and that note which futures are cancelled."""
    client = client_of(loop, SilentScheduler())
    client.cancel, client.unsubscribe_topic = lambda futures, force: cancelled.extend(futures), cancelled.append
    client.subscribe_topic = lambda topic, handler: None
    running = RoleCalls(client, [RoleCall(CHIEF, "localhost:1", never_stop, has_barrier=True)])
    RoleTasks.__enter__(running)
    future: Any = "a future"
    running._futures._futures[CHIEF] = future
    running._records.start(CHIEF, running._records.place(CHIEF, "tls://h:2"))
    running._membership.look()  # which is a question without an answer
    return running


def test_a_silent_scheduler_hides_no_error_of_the_block(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(role_tasks, "END_TIMEOUT_SECS", 0.0)
    monkeypatch.setattr(role_calls, "CLEAR_SECS", 0.05)
    cancelled: list[Any] = []
    running = running_on(loop, cancelled)
    with caplog.at_level(logging.WARNING, "psflow"):
        running.__exit__(None, None, None)
    assert cancelled == ["a future", "all", MEMORY_KILLS, running._futures.topic]
    assert running._membership._poll._answer is None
    assert [record.getMessage() for record in caplog.records if record.name.startswith("psflow")] == [
        "chief-0 did not end within 0.0 s"
    ]


def test_who_does_not_wait_for_the_end_has_cancelled_all(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*given: Any) -> None:
        raise KeyboardInterrupt

    cancelled: list[Any] = []
    running = running_on(loop, cancelled)
    monkeypatch.setattr(running._changed, "wait_for", interrupt)
    monkeypatch.setattr(role_calls, "CLEAR_SECS", 0.05)
    with pytest.raises(KeyboardInterrupt):
        running.__exit__(None, None, None)
    assert cancelled == ["a future", "all", MEMORY_KILLS, running._futures.topic]
    assert running._membership._poll._answer is None


def test_the_owner_names_a_silent_scheduler_while_tasks_begin(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch)
    running = running_on(loop, [])
    with pytest.raises(WaitTimeoutError, match=SILENT):
        running._await(lambda: [CHIEF], "start", never_stop)
    running._membership.close()


def call(monkeypatch: pytest.MonkeyPatch, worker: Any, check: Any, others: list[RoleId]) -> None:
    """Have a Dask worker call a function that comes to the barrier."""

    def meet(surroundings: Surroundings) -> None:
        assert surroundings.barrier is not None
        surroundings.barrier.wait(HANG_SECS)

    be_impatient(monkeypatch, HANG_SECS)
    monkeypatch.setattr(called_task.Liveness, "of_this_task", lambda role: SimpleNamespace(check=check))
    monkeypatch.setattr(called_task, "get_worker", lambda: worker)
    worker.log_event = lambda topic, event: None
    called_task.call_role(CHIEF, 1, "calls", cloudpickle.dumps(meet), others)


def test_a_task_that_is_to_end_waits_for_no_scheduler(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check() -> None:
        raise StoppedError("chief-0", "its Dask task was cancelled")

    with pytest.raises(StoppedError, match="its Dask task was cancelled"):
        call(monkeypatch, client_of(loop, SilentScheduler()), check, [])


def test_who_waits_at_the_barrier_names_a_silent_scheduler(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[None] = []
    scheduler = SilentScheduler(event_set=None, event_clear=None)
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
    assert scheduler.asked[-1] == ("event_set", "calls-chief-0-ended")
