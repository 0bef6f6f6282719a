"""Slots for all roles or for none, on a cluster that others use as well."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dask
import pytest
from distributed import Client, Event, LocalCluster, wait

from psflow.ps_runtime.cluster.admission import (
    AdmissionPolicy,
    admission,
    admission_lock,
    await_taken,
    free_now,
    look,
)
from psflow.ps_runtime.errors import CapacityError, WaitTimeoutError
from tests.leak_guard import no_leaks

pytestmark = pytest.mark.cluster(shared=True)


def never_stop() -> None:
    pass


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Two Dask workers with a thread each, in this process."""
    with (
        no_leaks(),
        dask.config.set({"temporary-directory": str(tmp_path_factory.mktemp("dask"))}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        workers = client.scheduler_info(n_workers=-1)["workers"]
        wait([client.submit(int, pure=False, workers=[address]) for address in workers])  # their threads stay
        yield client


@contextmanager
def taken(client: Client, key: str) -> Iterator[Event]:
    """Have one slot taken by a task with `key`, until the event that this gives is set, or the block ends."""
    with client.as_current():
        abandoned = Event(key)
    task = client.submit(Event.wait, abandoned, timeout=500, key=key)
    try:
        while not any(client.processing().values()):
            pass
        yield abandoned
    finally:
        abandoned.set()
        wait(task)
        abandoned.clear()


def test_a_full_cluster_is_an_error_at_once_where_that_is_asked_for(client: Client) -> None:
    said: list[str] = []
    words = r"the job has 2 roles, but the Dask cluster at inproc://\S+ has 1 free slots"
    with (
        taken(client, "psflow-0a1b-3-ps-0"),
        pytest.raises(CapacityError, match=words),
        admission(client, 2, AdmissionPolicy(3600, waits_for_slots=False, say=said.append), never_stop),
    ):
        pass
    assert said == []


def test_more_roles_than_there_are_slots_at_all_wait_for_nothing(client: Client) -> None:
    with (
        pytest.raises(CapacityError, match=r"the job has 3 roles, but .* has 2 free slots"),
        admission(client, 3, AdmissionPolicy(3600), never_stop),
    ):
        pass


def test_it_says_what_it_waits_for_and_goes_on_when_that_is_there(client: Client) -> None:
    said: list[str] = []
    with taken(client, "psflow-0a1b-3-ps-0") as abandoned:

        def say(line: str) -> None:
            said.append(line)
            abandoned.set()

        with admission(client, 2, AdmissionPolicy(3600, say=say), never_stop) as slots:
            assert len(set(slots.addresses)) == 2
    assert len(said) == 1
    assert said[0].startswith("waiting up to 3600 s for 2 slots of the Dask cluster at inproc://")
    assert said[0].endswith(": 1 is free, the others are taken by job 0a1b")


def test_after_its_time_a_full_cluster_is_an_error(client: Client) -> None:
    said: list[str] = []
    with (
        taken(client, "theirs"),
        pytest.raises(CapacityError, match="has 1 free slots"),
        admission(client, 2, AdmissionPolicy(0.01, say=said.append), never_stop),
    ):
        pass
    assert said[0].endswith("taken by 1 other task")


def test_it_says_so_if_nobody_takes_the_other_slots(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("psflow.ps_runtime.cluster.admission.check_capacity", lambda *given, grows: None)
    with (
        pytest.raises(CapacityError, match="has 2 free slots"),
        admission(client, 3, AdmissionPolicy(0.01, say=said.append), never_stop),
    ):
        pass
    assert said[0].endswith(": 2 are free, and no other task is running")


def test_the_slots_of_a_silent_worker_do_not_count_and_it_is_named(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def aged(*given: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        workers, tasks = look(*given)
        return workers | {stopped: workers[stopped] | {"last_seen": workers[stopped]["last_seen"] - 100}}, tasks

    stopped = next(iter(look(client)[0]))
    monkeypatch.setattr("psflow.ps_runtime.cluster.admission.look", aged)
    silence = re.escape(f"(without {stopped}: no heartbeat from there for 10 s)")
    for waits in (False, True):
        with (
            pytest.raises(CapacityError, match=rf"the Dask cluster at inproc://\S+ {silence} has 1 free slots"),
            admission(client, 2, AdmissionPolicy(0.01, waits_for_slots=waits, say=said.append), never_stop),
        ):
            pass
    assert len(said) == 1
    assert re.search(rf"2 slots of the Dask cluster at inproc://\S+ {silence}: 1 is free", said[0])


def test_while_a_job_waits_for_slots_a_lost_role_of_another_one_takes_what_is_free(client: Client) -> None:
    said: list[str] = []
    slots: list[str] = []
    with taken(client, "psflow-0a1b-3-ps-0") as abandoned:

        def wait_for_two() -> None:
            with admission(client, 2, AdmissionPolicy(300, say=said.append), never_stop) as both:
                slots.extend(both.addresses)

        thread = threading.Thread(target=wait_for_two)
        thread.start()
        while not said:
            pass
        with free_now(client, never_stop) as free:
            assert free is not None
            [slot] = free.addresses
        with free_now(client, never_stop, host="192.0.2.1") as free:
            assert free is not None
            assert not len(free)
        abandoned.set()
        thread.join(200)
    assert slot in slots


def test_a_slot_that_was_chosen_is_taken_for_who_chooses_next(client: Client) -> None:
    with client.as_current():
        abandoned = Event("chosen")
    with free_now(client, never_stop) as free:
        assert free is not None
        task = client.submit(Event.wait, abandoned, timeout=500, pure=False, workers=[free.addresses[0]])
        await_taken(client, free, free.addresses[:1], never_stop)
    try:
        with free_now(client, never_stop) as left:
            assert left is not None
            assert left.addresses == free.addresses[1:]
    finally:
        abandoned.set()
        wait(task)
        abandoned.clear()


def test_while_a_job_starts_no_other_one_chooses(client: Client) -> None:
    with admission(client, 2, AdmissionPolicy(1), never_stop):
        with free_now(client, never_stop) as free:
            assert free is None
        with free_now(client, never_stop, has_lock=True) as free:
            assert free is not None
            assert len(free) == 2
    with (
        free_now(client, never_stop) as free,
        pytest.raises(WaitTimeoutError, match=r"^another job on the Dask \S+ at \S+ did not finish starting"),
        admission(client, 2, AdmissionPolicy(0.01), never_stop),
    ):
        pass
    assert free is not None
    assert len(free) == 2


@pytest.mark.parametrize("waits", [True, False])
def test_a_job_chooses_among_all_free_slots(client: Client, waits: bool) -> None:
    with admission(client, 1, AdmissionPolicy(1, waits_for_slots=waits), never_stop) as slots:
        assert len(set(slots.addresses)) == len(slots) == 2


def test_while_the_lock_is_held_no_job_chooses(client: Client) -> None:
    with admission_lock(client, AdmissionPolicy(1), never_stop):
        with free_now(client, never_stop) as free:
            assert free is None
        with (
            pytest.raises(WaitTimeoutError, match="did not finish starting"),
            admission(client, 1, AdmissionPolicy(0.01), never_stop),
        ):
            pass
    with free_now(client, never_stop) as free:
        assert free is not None
        assert len(free) == 2


def test_of_two_that_start_at_once_one_waits_for_the_other(client: Client) -> None:
    said: list[str] = []
    with (
        admission(client, 2, AdmissionPolicy(1), never_stop),
        pytest.raises(
            WaitTimeoutError, match=r"^another job on the Dask \S+ at \S+ did not finish starting within 0\.01 s: start"
        ),
        admission(client, 2, AdmissionPolicy(0.01, say=said.append), never_stop),
    ):
        pass
    entered = threading.Event()
    with admission(client, 2, AdmissionPolicy(1), never_stop):

        def second() -> None:
            with admission(client, 2, AdmissionPolicy(30, say=said.append), never_stop):
                entered.set()

        thread = threading.Thread(target=second)
        thread.start()
        while not said:
            pass
        assert not entered.is_set()
    thread.join(200)
    assert entered.is_set()
    assert said[0].startswith("waiting up to 30 s for another job to start on the Dask cluster at inproc://")
