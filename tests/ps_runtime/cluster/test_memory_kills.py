"""Dask workers that their nannies kill for their memory: the loss of a role says so, with the peak and the limit."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dask.utils import parse_bytes
from distributed import Worker
from distributed.client import ClosedClientError

from psflow import TrainSpec
from psflow.ps_runtime.cluster import connecting
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.cluster.memory_kills import END_SECS, MemoryKills
from psflow.ps_runtime.cluster.role_monitor import RoleMonitor
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import Event, FirstStep, RoleLost
from psflow.ps_runtime.specs.roles import RoleId, job_roles
from tests.ps_runtime.cluster.test_training import endless, estimator

PS, CHIEF, WORKER, EVALUATOR = job_roles(1, 1, evaluator=True)
SLOTS = {PS: "tcp://h:1", CHIEF: "tcp://h:2", WORKER: "tcp://h:3", EVALUATOR: "tcp://h:4"}
WORKERS = {slot: {"memory_limit": 2**31} for slot in SLOTS.values()}
SMALLER = "raise memory_limit, or make batches smaller"
LIMIT_BYTES = 512 * 2**20


class Scheduler:
    """Of whose events a client hears."""

    cluster = None
    status = "running"

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[Any], None]] = {}
        self.subscribe_topic = self.handlers.__setitem__

    def unsubscribe_topic(self, topic: str) -> None:
        if self.status == "closed":
            raise ClosedClientError("Client is closed. Can't send unsubscribe-topic message.")
        del self.handlers[topic]

    def kill(self, slot: str, rss_bytes: int = 2_072_821_761) -> None:
        event = {"worker": slot, "pid": 1, "rss": rss_bytes}
        self.handlers["worker-restart-memory"]((0.0, event))

    def remove(self, slot: str, *, expected: bool = False) -> None:
        self.handlers["all"]((0.0, {"action": "remove-worker", "worker": slot, "expected": expected}))


@pytest.fixture
def scheduler() -> Any:
    return Scheduler()


def told(slot: str, advice: str, limit: str = " of its limit of 2.00 GiB") -> str:
    return f"the nanny of its Dask worker {slot} killed it at 1.93 GiB{limit}; {advice}"


def test_a_kill_is_told_with_its_peak_its_limit_and_what_to_do(scheduler: Any) -> None:
    presence: Any = SimpleNamespace(workers=WORKERS)
    kills = MemoryKills(scheduler, presence)
    kills.open()
    for role in (PS, WORKER, EVALUATOR):
        scheduler.kill(SLOTS[role])
    presence.workers = {}
    assert kills.reasons(SLOTS) == {
        PS: told("tcp://h:1", "raise memory_limit, or start more ps"),
        WORKER: told("tcp://h:3", SMALLER),
        EVALUATOR: told("tcp://h:4", SMALLER),
    }
    scheduler.kill("tcp://h:3")
    assert kills.reasons({WORKER: "tcp://h:3"}) == {WORKER: told("tcp://h:3", SMALLER, limit="")}
    kills.close()
    assert scheduler.handlers == {}


def test_what_ends_a_process_long_after_is_something_else(scheduler: Any) -> None:
    now = 0.0
    presence: Any = SimpleNamespace(workers=WORKERS)
    kills = MemoryKills(scheduler, presence, lambda: now)
    kills.open()
    scheduler.kill(SLOTS[WORKER])
    now = END_SECS
    assert list(kills.reasons(SLOTS)) == [WORKER]
    now += 1
    assert kills.reasons(SLOTS) == {}


def test_a_client_that_is_closed_by_now_hears_of_nothing_more(scheduler: Any) -> None:
    presence: Any = SimpleNamespace(workers={})
    kills = MemoryKills(scheduler, presence)
    kills.open()
    scheduler.status = "closed"
    kills.close()


def test_only_who_is_lost_without_a_word_was_killed(scheduler: Any) -> None:
    """A process that ignores SIGTERM lives on if it takes less memory soon, and may leave in order."""
    supervisor = Supervisor(SLOTS, 1, 3)
    for role, slot in SLOTS.items():
        supervisor.start(role, supervisor.place(role, slot))
        supervisor.listen(role, 1)
    monitor = RoleMonitor(scheduler, "topic", supervisor, threading.Condition(supervisor.lock), 30.0)
    monitor.open()
    for slot in SLOTS.values():
        scheduler.kill(slot)
    assert supervisor.waiting() == []
    supervisor.hang(EVALUATOR, 1, "it did not answer for 30 s")
    supervisor.fail(CHIEF, 1, ValueError("of model_fn"))
    for role in (WORKER, EVALUATOR, CHIEF, PS):
        scheduler.remove(SLOTS[role], expected=role == WORKER)
    monitor.close()
    assert scheduler.handlers == {}
    losses = {role: loss.error.error for role in SLOTS for loss in supervisor.losses(role) if not loss.is_rollback}
    assert losses == {
        PS: "the nanny of its Dask worker tcp://h:1 killed it at 1.93 GiB; raise memory_limit, or start more ps",
        WORKER: "its Dask worker tcp://h:3 was closed",
        EVALUATOR: "it did not answer for 30 s",
    }
    assert isinstance(supervisor.error(CHIEF), ValueError)


class BothLostError(Exception):
    """The test has seen what it waits for."""


async def take_all(dask_worker: Worker) -> None:
    """Take all memory that a Dask worker may have."""
    dask_worker.held = np.ones(LIMIT_BYTES, np.uint8)  # type: ignore[attr-defined]


@pytest.mark.cluster
def test_a_worker_and_a_ps_that_take_too_much_memory_are_lost_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "parse_memory_limit", lambda *given, **options: LIMIT_BYTES)
    events: list[Event] = []
    hungry = ["ps-0", "worker-0"]
    with (
        open_cluster(None, 3, 300) as client,
        Attempt(estimator(tmp_path), TrainSpec(endless, 10**8), (), num_workers=1) as attempt,
        ClusterJob(client, attempt.job(), events.append) as run,
    ):

        def check() -> None:
            losses = sum(isinstance(event, RoleLost) for event in events)
            trains = {event.role for event in events if isinstance(event, FirstStep)} == {"chief-0", "worker-0"}
            if losses == 2:
                raise BothLostError
            if trains and losses + len(hungry) == 2:
                slot = run._supervisor.slots()[RoleId.parse(hungry.pop())]
                client.run(take_all, workers=[slot], wait=False)

        run.start(AdmissionPolicy(10))
        with pytest.raises(BothLostError):
            run.join(check)
    losses = [event for event in events if isinstance(event, RoleLost)]
    assert [event.role for event in losses] == ["worker-0", "ps-0"]
    for event, instead in zip(losses, ("make batches smaller", "train on a cluster"), strict=True):
        parts = re.fullmatch(
            r"the nanny of its Dask worker tls://127\.0\.0\.1:\d+ killed it at (\S+ MiB) of its limit of 512\.00 MiB; "
            rf"the processes share the memory of this machine equally: start fewer workers, or {instead}",
            event.reason,
        )
        assert parts, event.reason
        assert parse_bytes(parts[1]) > 0.95 * LIMIT_BYTES
