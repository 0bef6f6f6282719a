"""A Dask worker that closes waits for its role, but not for ever; told without a cluster."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from distributed.core import Status

from psflow.ps_runtime.cluster import graceful_shutdown
from psflow.ps_runtime.cluster.graceful_shutdown import GracefulShutdown
from psflow.ps_runtime.cluster.role_task import Liveness
from psflow.ps_runtime.errors import StoppedError

KEY = "worker-0 of a job"


class Task:
    """What a Dask worker knows of a task."""

    state = "executing"


class Closing:
    """A Dask worker, as far as a role looks at it."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self.state = self
        self.tasks = {KEY: Task()}


@pytest.fixture
def told() -> list[str]:
    return []


def departing(status: Status, told: list[str]) -> tuple[GracefulShutdown, Any]:
    worker: Any = Closing(status)
    return GracefulShutdown(worker, lambda: told.append("leaving")), worker


@pytest.mark.parametrize("status", [Status.running, Status.paused])
def test_a_role_stays_while_its_dask_worker_runs(status: Status, told: list[str]) -> None:
    stays, worker = departing(status, told)
    assert not stays.is_due()
    assert not stays.has_time()
    Liveness(worker, KEY, "worker-0", stays).check()
    asyncio.run(stays.teardown(worker))
    assert told == []


@pytest.mark.parametrize("status", [Status.closing, Status.closing_gracefully])
def test_a_role_that_may_finish_its_step_leaves_before_the_next_and_another_one_at_once(
    status: Status, told: list[str]
) -> None:
    leaves, worker = departing(status, told)
    liveness = Liveness(worker, KEY, "worker-0", leaves, finishes_step=True)
    liveness.check()
    assert liveness.is_shutting_down()
    assert told == ["leaving"], "once"
    of_chief = Liveness(worker, KEY, "chief-0")
    assert not of_chief.is_shutting_down()
    with pytest.raises(StoppedError, match=rf"^chief-0 was stopped: its Dask worker is {status.name}$"):
        of_chief.check()


def test_a_step_that_takes_too_long_is_not_waited_for(told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graceful_shutdown, "LEAVE_SECS", 0.0)
    leaves, worker = departing(Status.closing, told)
    asyncio.run(leaves.teardown(worker))
    assert leaves.is_due()
    assert told == ["leaving"]
    with pytest.raises(StoppedError, match="its Dask worker is closing"):
        Liveness(worker, KEY, "worker-0", leaves, finishes_step=True).check()


@pytest.mark.parametrize("status", [Status.closing, Status.closing_gracefully])
def test_the_owner_hears_that_a_ps_leaves_before_it_ends(status: Status, told: list[str]) -> None:
    leaves, worker = departing(status, told)
    with pytest.raises(StoppedError, match=rf"its Dask worker is {status.name}$"):
        Liveness(worker, KEY, "ps-0", leaves).check()
    assert told == ["leaving"]


def test_a_role_whose_task_was_cancelled_finishes_nothing(told: list[str]) -> None:
    leaves, worker = departing(Status.closing, told)
    worker.tasks[KEY].state = "cancelled"
    with pytest.raises(StoppedError, match="its Dask task was cancelled"):
        Liveness(worker, KEY, "worker-0", leaves, finishes_step=True).check()


def test_a_dask_worker_is_held_up_until_its_role_has_ended(told: list[str]) -> None:
    leaves, worker = departing(Status.closing, told)

    async def close() -> bool:
        closing = asyncio.create_task(leaves.teardown(worker))
        await asyncio.sleep(0)
        has_waited = not closing.done()
        threading.Thread(target=leaves.end).start()
        await closing
        return has_waited

    assert asyncio.run(close())
    assert told == ["leaving"]
