"""Results of tasks that have ended, which a scheduler hands over, or does not; without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from psflow.ps_runtime.cluster import fetching
from psflow.ps_runtime.cluster.fetching import fetched
from psflow.ps_runtime.cluster.ordered_results import _result
from psflow.ps_runtime.cluster.slots import Slots
from psflow.ps_runtime.errors import WaitTimeoutError
from tests.silent_scheduler import SILENT, HangingFuture, SilentScheduler, be_impatient, client_of


@pytest.fixture
def client(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return one whose scheduler is soon taken for silent."""
    be_impatient(monkeypatch)
    monkeypatch.setattr(fetching, "LOOK_SECS", 0.001)
    return client_of(loop, SilentScheduler())


class ComingFuture(HangingFuture):
    """Has its result, or error, once somebody has asked the scheduler how many slots it has."""

    def __init__(self, client: Any, error: Exception | None = None) -> None:
        super().__init__(client)
        self.error = error
        self.status = "error" if error is not None else "finished"

    def __await__(self) -> Generator[Any, None, str]:
        while not self.client.scheduler.asked:
            yield
        if self.error is not None:
            raise self.error
        return "a result"


def test_a_silent_scheduler_is_named(client: Any) -> None:
    future: Any = HangingFuture(client)
    with pytest.raises(WaitTimeoutError, match=SILENT):
        fetched(Slots(client), future)


def test_a_scheduler_that_answers_may_take_its_time(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    be_impatient(monkeypatch, 60)
    client.scheduler = SilentScheduler(ncores={"tls://h:2": 1})
    future: Any = ComingFuture(client)
    assert fetched(Slots(client), future).result() == "a result"
    failed: Any = ComingFuture(client, TimeoutError("of the task itself"))
    with pytest.raises(TimeoutError, match="of the task itself"):
        fetched(Slots(client), failed).result()


class LateFuture(ComingFuture):
    """Is asked for its result twice before the scheduler, which was stopped, takes a connection up."""

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        self.num_silent = 2

    def __await__(self) -> Generator[Any, None, str]:
        if self.num_silent:
            self.num_silent -= 1
            raise OSError("Timed out trying to connect to tls://h:1 after 30 s") from TimeoutError()
        return (yield from super().__await__())


def test_a_scheduler_that_was_stopped_hands_the_result_over_when_it_goes_on(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_impatient(monkeypatch, 60)
    client.scheduler = SilentScheduler(ncores={"tls://h:2": 1})
    late: Any = LateFuture(client)
    assert fetched(Slots(client), late).result() == "a result"


def test_what_a_task_could_not_connect_to_is_its_own_failure(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    be_impatient(monkeypatch, 60)
    client.scheduler = SilentScheduler(ncores={"tls://h:2": 1})
    error = OSError("no database")
    error.__cause__ = TimeoutError()
    failed: Any = ComingFuture(client, error)
    with pytest.raises(OSError, match="no database"):
        fetched(Slots(client), failed).result()


def test_a_partition_whose_result_nobody_hands_over_names_the_scheduler(client: Any) -> None:
    future: Any = HangingFuture(client)
    with pytest.raises(WaitTimeoutError, match=SILENT):
        _result(client, Slots(client), "7", future)
