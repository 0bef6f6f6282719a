"""Which slots of a cluster come first, from what its scheduler says."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import admission
from psflow.ps_runtime.cluster.admission import (
    AdmissionPolicy,
    admission_lock,
    await_taken,
    free_now,
    free_slots,
    silent,
)
from psflow.ps_runtime.cluster.placement import FreeSlots


def worker(num_threads: int = 1, **resources: float) -> dict[str, Any]:
    return {"nthreads": num_threads, "resources": resources, "status": "running", "last_seen": 1000.0}


@pytest.mark.parametrize("declares", ["a", "b", "c"])
def test_a_worker_that_declares_psflow_comes_first(declares: str) -> None:
    workers = {name: worker(psflow=1) if name == declares else worker() for name in "abc"}
    assert free_slots(workers, {}) == [declares, *sorted({*"abc"} - {declares})]


def test_all_threads_of_a_worker_that_declares_psflow_come_before_any_other_worker() -> None:
    workers = {"a": worker(2), "b": worker(2, psflow=1), "c": worker(2, GPU=1), "d": worker(1, psflow=1)}
    assert free_slots(workers, {}) == ["b", "d", "b", "a", "c", "a", "c"]


def test_among_equals_the_roles_spread() -> None:
    assert free_slots({"b": worker(3), "a": worker(1), "c": worker(2)}, {}) == ["a", "b", "c", "b", "c", "b"]


def test_a_slot_where_something_runs_is_not_free() -> None:
    workers = {"a": worker(2), "b": worker(1), "c": worker(1)}
    assert free_slots(workers, {"a": ["x"], "b": ["y", "z"], "gone": ["x"]}) == ["a", "c"]


def test_a_cluster_without_workers_has_no_slots() -> None:
    assert free_slots({}, {}) == []


@pytest.mark.parametrize("status", ["closing", "closing_gracefully"])
def test_a_worker_that_closes_has_no_slot(status: str) -> None:
    assert free_slots({"a": worker() | {"status": status}, "b": worker()}, {}) == ["b"]


def test_a_worker_that_was_not_heard_from_for_a_while_has_no_slot() -> None:
    workers = {"a": worker(psflow=1) | {"last_seen": 989.0}, "b": worker(), "c": worker() | {"last_seen": 991.0}}
    assert free_slots(workers, {}) == ["b", "c"]
    assert silent(workers) == {"a"}


def test_on_a_large_cluster_whose_heartbeats_are_rare_a_worker_may_be_silent_for_longer() -> None:
    workers = {str(number): worker() | {"last_seen": 1000.0 - number % 50} for number in range(1000)}
    assert {address for address in workers if int(address) % 50 > 30} == silent(workers)
    assert len(free_slots(workers, {})) == 1000 * 31 / 50


def test_workers_of_which_none_was_heard_from_for_long_are_as_good_as_any() -> None:
    workers = {name: worker() | {"last_seen": 5.0} for name in "ab"}
    assert free_slots(workers, {}) == ["a", "b"]


class LosingScheduler:
    """Loses the Dask worker ``a``, and so its task, after its first answer."""

    def __init__(self) -> None:
        self.tasks = {"a": ["psflow-1-0-worker-0"], "b": ["psflow-1-0-chief-0"]}

    async def processing(self, workers: None) -> dict[str, list[str]]:
        return self._answered(dict(self.tasks))

    async def identity(self, n_workers: int) -> dict[str, Any]:
        return self._answered({"workers": {name: worker() for name in self.tasks}})

    def _answered(self, answer: dict[str, Any]) -> dict[str, Any]:
        self.tasks.pop("a", None)
        return answer


def test_a_worker_that_is_lost_while_the_scheduler_is_asked_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "ask", lambda client, question, check: asyncio.run(question(LosingScheduler())))
    assert free_slots(*admission.look(None)) == []  # type: ignore[arg-type]


def never_stop() -> None:
    pass


@pytest.mark.parametrize("chosen", [["a"], ["a", "a"]])
def test_what_was_chosen_is_looked_for_until_the_scheduler_knows_all_of_it(
    monkeypatch: pytest.MonkeyPatch, chosen: list[str]
) -> None:
    num_taken = iter(range(len(chosen) + 1))
    workers = {"a": worker(2), "b": worker()}
    monkeypatch.setattr(admission, "look", lambda client, check: (workers, {"a": ["x"] * next(num_taken)}))
    await_taken(None, FreeSlots(["a", "b", "a"]), chosen, never_stop)  # type: ignore[arg-type]
    assert next(num_taken, None) is None


def test_what_others_take_meanwhile_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([({"a": worker(2), "b": worker()}, {"a": ["x", "theirs"], "b": ["theirs"]})])
    monkeypatch.setattr(admission, "look", lambda client, check: next(looks))
    await_taken(None, FreeSlots(["a", "b", "a"]), ["a"], never_stop)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "given"), [("h2", ["tls://h2:1", "tls://h2:2"]), ("h1", ["tls://h1:1"]), ("h0", []), ("h4", [])]
)
def test_a_role_that_needs_a_host_gets_slots_of_that_host_alone(
    monkeypatch: pytest.MonkeyPatch, host: str, given: list[str]
) -> None:
    workers = {f"tls://{place}": worker() for place in ("h1:1", "h2:1", "h2:2", "h3:1")}
    monkeypatch.setattr(admission, "look", lambda client, check: (workers, {}))
    monkeypatch.setattr(admission, "ClusterLock", lambda client, name: nullcontext())
    with free_now(None, never_stop, host, has_lock=True) as slots:  # type: ignore[arg-type]
        assert slots is not None
        assert slots.addresses == given


def test_that_another_job_is_waited_for_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, said = iter([False, False, False, True, True]), list[str]()
    lock = SimpleNamespace(take=lambda check: next(answers))
    monkeypatch.setattr(admission, "ClusterLock", lambda client, name: nullcontext(lock))
    monkeypatch.setattr(admission, "POLL_SECS", 0.0)
    monkeypatch.setattr(admission, "SAY_SECS", 0.0)
    client: Any = SimpleNamespace(scheduler=SimpleNamespace(address="tls://s:1"))
    with admission_lock(client, AdmissionPolicy(60, say=said.append), never_stop):
        assert said == ["waiting up to 60 s for another job to start on the Dask cluster at tls://s:1"]


def test_nothing_is_looked_for_where_nothing_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "look", None)
    await_taken(None, FreeSlots(["a"]), [], never_stop)  # type: ignore[arg-type]
