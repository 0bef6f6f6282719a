"""What fails of a job: Dask workers that are gone, killed for their memory or silent; without a cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.client import ClosedClientError

from psflow.ps_runtime.cluster.membership import END_SECS, KILL_SECS, POLLS, Membership
from psflow.ps_runtime.cluster.processor_use import is_busy
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.specs.roles import RoleId, job_roles
from tests.failing_slots import hang, lose_slots
from tests.limits import HANG_SECS

ROLES = PS, CHIEF, WORKER, EVALUATOR = job_roles(1, 1, evaluator=True)
LIFE = 65536
SLOTS = {role: f"tcp://h:{number}" for number, role in enumerate(ROLES, 1)}
TIMEOUT_SECS = 30.0
ENDED = f"it did not answer for 30 s, so its Dask worker {SLOTS[PS]} was ended"
SMALLER = "raise memory_limit, or make batches smaller"


class Cluster:
    """A client of a cluster whose Dask workers are silent, a job on it, and a clock by hand."""

    cluster = None
    status = "running"

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = SimpleNamespace(asyncio_loop=loop)
        self.scheduler = self
        self.handlers: dict[str, Callable[[Any], None]] = {}
        self.subscribe_topic = self.handlers.__setitem__
        self.beats = dict.fromkeys(SLOTS.values(), 1.0)
        """Times of the last heartbeats of the Dask workers that the scheduler lists."""
        self.computes: Any = {}
        """Answer of a nanny."""
        self.failure: Exception | None = None
        """Of the end of a Dask worker."""
        self.ended: list[str] = []
        self.now = 0.0
        self.supervisor = Supervisor(ROLES, LIFE, 3, clock=lambda: self.now)
        for role, slot in SLOTS.items():
            self.supervisor.start(role, self.supervisor.place(role, slot))
            self.supervisor.listen(role, LIFE)
            self.supervisor.step(role, LIFE)
        changed = threading.Condition(self.supervisor.lock)
        client: Any = self
        self.membership = Membership(client, "topic", self.supervisor, changed, TIMEOUT_SECS, lambda: self.now)
        self.membership.open()

    async def identity(self, n_workers: int) -> Any:
        assert n_workers == -1
        return {
            "workers": {
                slot: {"last_seen": at, "metrics": {}, "memory_limit": 2**31} for slot, at in self.beats.items()
            }
        }

    async def run(self, function: Any, what: str, *, workers: list[str], nanny: bool, on_error: str) -> Any:
        assert (function, what, nanny) == (is_busy, "answer", True)
        if isinstance(self.computes, Exception):
            raise self.computes
        return {slot: is_so for slot, is_so in self.computes.items() if slot in workers}

    async def restart_workers(self, *, workers: list[str], timeout: float, **options: Any) -> None:
        assert (timeout, options["wait_for_workers"]) == (END_SECS, False)
        self.ended += workers
        if self.failure is not None:
            raise self.failure

    def unsubscribe_topic(self, topic: str) -> None:
        if self.status == "closed":
            raise ClosedClientError("Client is closed. Can't send unsubscribe-topic message.")
        del self.handlers[topic]

    def kill(self, slot: str) -> None:
        self.handlers["worker-restart-memory"]((0.0, {"worker": slot, "pid": 1, "rss": 2_072_821_761}))

    def remove(self, slot: str, *, expected: bool = False) -> None:
        self.handlers["all"]((0.0, {"action": "remove-worker", "worker": slot, "expected": expected}))

    def poll(self, secs: float = TIMEOUT_SECS / POLLS, times: int = 1) -> None:
        """Poll once each `secs`, and wait for what follows from that."""
        for _ in range(times):
            self.now += secs
            self.membership.look()  # asks
            question = self.membership._poll._answer
            assert question is not None
            wait([question], HANG_SECS)
            self.membership.look()
            wait(self.membership._checks.values(), HANG_SECS)

    def only(self, *silent: RoleId) -> None:
        """Have all other roles leave."""
        for role in set(ROLES) - set(silent):
            self.supervisor.leave(role, LIFE)

    def hangs(self) -> dict[RoleId, str]:
        records = self.supervisor._records
        return {role: r.current.hang.reason for role, r in records.items() if r.current and r.current.hang}

    def losses(self) -> dict[RoleId, str]:
        losses = {role: self.supervisor.losses(role) for role in ROLES}
        return {role: loss.error.error for role, of in losses.items() for loss in of if not loss.is_rollback}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    cluster = Cluster(loop)
    yield cluster
    cluster.membership.close()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(HANG_SECS)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_dask_worker_that_the_scheduler_does_not_list_is_lost_since_it_was_seen_last(cluster: Cluster) -> None:
    cluster.poll()
    del cluster.beats[SLOTS[EVALUATOR]]
    cluster.poll()
    [loss] = cluster.supervisor.losses(EVALUATOR)
    assert (loss.error.error, loss.at) == (f"its Dask worker {SLOTS[EVALUATOR]} was lost", TIMEOUT_SECS / POLLS)
    assert cluster.supervisor.waiting() == [EVALUATOR]


def test_a_role_that_is_placed_while_the_question_is_under_way_is_not_missing(cluster: Cluster) -> None:
    lose_slots(cluster.supervisor, {SLOTS[EVALUATOR]})
    cluster.now += 5
    cluster.membership.look()
    question = cluster.membership._poll._answer
    assert question is not None
    wait([question], HANG_SECS)
    cluster.supervisor.place(EVALUATOR, "tcp://new:1")
    cluster.membership.look()
    assert cluster.supervisor.waiting() == []


@pytest.mark.parametrize(("timeout_secs", "poll_secs"), [(30.0, 5.0), (3000.0, 5.0), (6.0, 1.0)])
def test_there_are_six_polls_within_the_timeout(cluster: Cluster, timeout_secs: float, poll_secs: float) -> None:
    client: Any = cluster
    membership = Membership(client, "topic", cluster.supervisor, threading.Condition(), timeout_secs)
    assert membership._poll._every_secs == poll_secs


@pytest.mark.parametrize("computes", [{SLOTS[PS]: False}, {}, TimeoutError("silent"), OSError("gone"), KeyError("k")])
def test_a_silent_life_is_noted_and_then_its_dask_worker_is_ended(cluster: Cluster, computes: Any) -> None:
    cluster.only(PS)
    cluster.computes = computes
    cluster.poll(times=POLLS)
    assert (cluster.hangs(), cluster.ended) == ({}, [])
    cluster.poll()
    assert (cluster.hangs(), cluster.ended, cluster.losses()) == ({PS: ENDED}, [SLOTS[PS]], {})
    cluster.remove(SLOTS[PS])
    assert cluster.losses() == {PS: ENDED}
    assert cluster.supervisor.losses(PS)[0].at == cluster.now - TIMEOUT_SECS


def test_a_life_that_has_ended_meanwhile_takes_no_dask_worker_with_it(cluster: Cluster) -> None:
    cluster.only(PS)
    asked = cluster.run

    async def run(*given: Any, **options: Any) -> Any:
        cluster.supervisor.leave(PS, LIFE)
        return await asked(*given, **options)

    cluster.run = run  # type: ignore[method-assign]
    cluster.poll(times=POLLS + 1)
    assert (cluster.hangs(), cluster.ended) == ({}, [])


def test_one_whose_process_computes_is_waited_for(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.only(PS)
    cluster.computes = {SLOTS[PS]: True}
    cluster.poll(times=POLLS + 1)
    assert cluster.ended == []
    assert "ps-0: it did not answer for 30 s, but its process computes, so psflow waits for it" in caplog.text
    cluster.computes = {}
    cluster.poll(times=POLLS + 1)
    assert cluster.ended == [SLOTS[PS]]


def test_a_silent_worker_is_named_and_not_ended_and_after_training_not_even_named(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.only(WORKER)
    cluster.poll(times=POLLS + 1)
    assert (cluster.hangs(), cluster.ended) == ({}, [])
    words = (
        "worker-0: it did not answer for 30 s; psflow does not end it, because the others can go on without it; its "
        f"Dask worker is {SLOTS[WORKER]}"
    )
    assert caplog.messages == [words]
    cluster.supervisor.finish(CHIEF, LIFE, {})
    cluster.poll(times=2 * POLLS)
    assert caplog.messages == [words]


def test_time_in_which_nobody_could_look_is_nobodys_silence(cluster: Cluster) -> None:
    cluster.only(PS)
    cluster.poll()
    for _ in range(2):
        cluster.poll(1e6)  # the owner was stopped, or the scheduler, or all of the machine
    assert cluster.ended == []
    cluster.poll(1e6)
    assert cluster.ended == [SLOTS[PS]]


def test_where_heartbeats_are_rare_four_of_them_have_to_be_missed(cluster: Cluster) -> None:
    cluster.only(PS)
    cluster.beats |= {f"tcp://h:{i}": 1.0 for i in range(5, 3001)}
    cluster.poll(10.0, times=7)  # one of 3000 Dask workers has a heartbeat each 16 s
    assert cluster.ended == []
    cluster.poll(10.0)
    assert cluster.hangs() == {PS: ENDED.replace("30 s", "64 s")}


def test_an_end_that_fails_is_tried_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.only(PS)
    cluster.failure = OSError("the connection broke")
    cluster.poll(times=2 * (POLLS + 1))
    assert cluster.ended == [SLOTS[PS]] * 2
    cluster.poll()
    assert "could not be ended, psflow tries again: OSError('the connection broke')" in caplog.text


def told(slot: str, advice: str, limit: str = " of its limit of 2.00 GiB") -> str:
    return f"the nanny of its Dask worker {slot} killed it at 1.93 GiB{limit}; {advice}"


def test_a_kill_is_told_with_its_peak_its_limit_and_what_to_do(cluster: Cluster) -> None:
    cluster.kill(SLOTS[EVALUATOR])  # the scheduler has not yet been asked for the limits
    cluster.poll()
    cluster.kill(SLOTS[PS])
    cluster.kill(SLOTS[WORKER])
    assert cluster.losses() == {}
    for role in (EVALUATOR, WORKER, PS):
        cluster.remove(SLOTS[role])
    assert cluster.losses() == {
        PS: told(SLOTS[PS], "raise memory_limit, or start more ps"),
        WORKER: told(SLOTS[WORKER], SMALLER),
        EVALUATOR: told(SLOTS[EVALUATOR], SMALLER, limit=""),
    }


@pytest.mark.parametrize(("secs", "is_told"), [(KILL_SECS, True), (KILL_SECS + 1, False)])
def test_what_ends_a_process_long_after_is_something_else(cluster: Cluster, secs: float, is_told: bool) -> None:
    cluster.kill(SLOTS[WORKER])
    cluster.now = secs
    cluster.remove(SLOTS[WORKER])
    assert ("killed it" in cluster.losses()[WORKER]) == is_told


def test_only_who_is_lost_without_a_word_was_killed(cluster: Cluster) -> None:
    """A process that ignores SIGTERM lives on if it takes less memory soon, and may leave in order."""
    for slot in SLOTS.values():
        cluster.kill(slot)
    hang(cluster.supervisor, EVALUATOR, LIFE, "it did not answer for 30 s")
    cluster.supervisor.fail(CHIEF, LIFE, ValueError("of model_fn"))
    for role in (WORKER, EVALUATOR, CHIEF, PS):
        cluster.remove(SLOTS[role], expected=role == WORKER)
    assert cluster.losses() == {
        PS: told(SLOTS[PS], "raise memory_limit, or start more ps", limit=""),
        WORKER: f"its Dask worker {SLOTS[WORKER]} was closed",
        EVALUATOR: "it did not answer for 30 s",
    }
    assert isinstance(cluster.supervisor.error(CHIEF), ValueError)


def test_two_jobs_of_one_client_hear_of_it_each_until_they_are_closed(cluster: Cluster) -> None:
    client: Any = cluster
    others = Supervisor([PS], LIFE, 3)
    other = Membership(client, "other", others, threading.Condition(others.lock), TIMEOUT_SECS)
    other.open()
    others.start(PS, others.place(PS, SLOTS[WORKER]))
    cluster.kill(SLOTS[WORKER])
    cluster.remove(SLOTS[WORKER])
    assert cluster.losses() == {WORKER: told(SLOTS[WORKER], SMALLER, limit="")}
    assert "killed it at 1.93 GiB" in others.losses(PS)[0].error.error
    other.close()
    cluster.remove(SLOTS[EVALUATOR], expected=True)
    assert cluster.losses()[EVALUATOR] == f"its Dask worker {SLOTS[EVALUATOR]} was closed"


@pytest.mark.parametrize("status", ["running", "closed"])
def test_who_is_closed_hears_of_nothing_more(cluster: Cluster, status: str) -> None:
    cluster.membership.look()
    cluster.status = status
    cluster.membership.close()
    assert (cluster.handlers == {}) == (status == "running")
    cluster.status = "closed"
    cluster.membership.close()
