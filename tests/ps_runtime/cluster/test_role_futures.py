"""How the owner of a job takes the end of a life, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.scheduler import KilledWorker

from psflow.ps_runtime.cluster import role_futures as module
from psflow.ps_runtime.cluster.role_futures import RoleFutures
from psflow.ps_runtime.errors import RoleFailedError
from psflow.ps_runtime.specs.roles import RoleId

CHIEF, WORKER = RoleId.parse("chief-0"), RoleId.parse("worker-0")
REPORT = {"exit": "finished"}

Outcomes = list[tuple[RoleId, int, dict[str, Any] | BaseException, RoleFailedError | None]]


async def returns() -> dict[str, Any]:
    return REPORT


async def raises_timeout() -> dict[str, Any]:
    raise TimeoutError("of an input_fn")


async def was_killed() -> dict[str, Any]:
    raise KilledWorker("psflow-j-1-worker-0", SimpleNamespace(address="tcp://h:1"), 0)  # type: ignore[arg-type]


def outcomes_of(**ends: Callable[[], Awaitable[dict[str, Any]]]) -> Outcomes:
    """Have lives of the chief and of a worker end, in this order; return what the owner is told."""
    told: Outcomes = []
    ended: list[Callable[[], None]] = []

    async def run() -> None:
        tasks: list[asyncio.Task[Any]] = []
        client: Any = SimpleNamespace(
            loop=SimpleNamespace(add_callback=lambda call, *given: tasks.append(asyncio.create_task(call(*given)))),
            submit=lambda *given, key, **options: SimpleNamespace(
                end=ends[key.split("-")[3]],
                add_done_callback=lambda call: ended.append(lambda: call(futures._futures[given[1]])),
            ),
            gather=lambda future, asynchronous: future.end(),
        )
        futures = RoleFutures(client, "psflow-j-1", lambda *outcome: told.append(outcome))
        for role in (CHIEF, WORKER):
            futures.submit(role, 7, "tcp://h:1", print)
        for end in ended:
            end()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    return told


def test_a_report_that_cannot_be_fetched_holds_no_other_one_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESULT_TIMEOUT_SECS", 0.01)
    first, second = outcomes_of(chief=lambda: asyncio.sleep(100, REPORT), worker=returns)
    assert first == (WORKER, 7, REPORT, None)
    assert second[:2] == (CHIEF, 7)
    assert str(second[2]) == "chief-0 did not hand over its report within 0.01 s"


def test_what_a_role_raises_is_its_outcome_and_no_wait_of_the_owner() -> None:
    (role, _, error, _), _ = outcomes_of(chief=raises_timeout, worker=returns)
    assert (role, repr(error)) == (CHIEF, "TimeoutError('of an input_fn')")


def test_a_killed_dask_worker_is_no_failure_of_its_role_where_dask_allows_none() -> None:
    assert outcomes_of(chief=returns, worker=was_killed) == [(CHIEF, 7, REPORT, None)]
