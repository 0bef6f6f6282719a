"""What becomes of a life that is silent: ended, or waited for, as its nanny says; without a cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import probe as module
from psflow.ps_runtime.cluster.hangs import RunningIncarnation
from psflow.ps_runtime.cluster.probe import END_SECS, LOOKS, Probe, is_busy, is_runnable
from psflow.ps_runtime.specs.roles import RoleId
from tests.limits import HANG_SECS

SLOT = "tcp://h:1"
PS = RunningIncarnation(RoleId.parse("ps-0"), 65536, SLOT)
WORKER = RunningIncarnation(RoleId.parse("worker-1"), 65536, SLOT)
TIMEOUT_SECS = 30.0
ENDED = f"it did not answer for 30 s, so its Dask worker {SLOT} was ended"


class Cluster:
    """A client of a cluster whose one worker is silent, and a clock manually."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = SimpleNamespace(asyncio_loop=loop)
        self.scheduler = self
        self.answer: Any = {SLOT: False}
        """Of the nanny."""
        self.failure: Exception | None = None
        """Of the end of the worker."""
        self.now = 0.0
        self.is_running = True
        self.done: list[Any] = []
        """What was noted and asked for, in its order."""
        self.probe = Probe(self, "topic", TIMEOUT_SECS, self.note, lambda: self.now)  # type: ignore[arg-type]

    async def run(self, function: Any, what: str, *, workers: list[str], nanny: bool, on_error: str) -> Any:
        assert (function, what, workers, nanny) == (is_busy, "answer", [SLOT], True)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def note(self, running: RunningIncarnation, reason: str) -> bool:
        self.done.append((running, reason))
        return self.is_running

    async def restart_workers(self, *, workers: list[str], timeout: float, **options: Any) -> None:
        assert (timeout, options["wait_for_workers"]) == (END_SECS, False)
        self.done.append(workers)
        if self.failure is not None:
            raise self.failure

    def look(self, secs: float = TIMEOUT_SECS / LOOKS, running: RunningIncarnation = PS) -> None:
        """Look once, after so many seconds, and wait for what the probe does of it."""
        self.now += secs
        self.probe.look([running], {SLOT: {"last_seen": 1.0, "metrics": {}}})
        wait(self.probe._under_way.values(), HANG_SECS)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    cluster = Cluster(loop)
    yield cluster
    cluster.probe.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("answer", [{SLOT: False}, {}, TimeoutError("silent"), OSError("gone"), KeyError(SLOT)])
def test_a_silent_life_is_noted_and_then_its_dask_worker_is_ended(cluster: Cluster, answer: Any) -> None:
    cluster.answer = answer
    for _ in range(LOOKS):
        cluster.look()
    assert cluster.done == []
    cluster.look()
    assert cluster.done == [(PS, ENDED), [SLOT]]


def test_a_life_that_has_ended_meanwhile_takes_no_dask_worker_with_it(cluster: Cluster) -> None:
    cluster.is_running = False
    for _ in range(LOOKS + 1):
        cluster.look()
    assert cluster.done == [(PS, ENDED)]


def test_one_whose_process_computes_is_waited_for(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.answer = {SLOT: True}
    for _ in range(LOOKS + 1):
        cluster.look()
    assert cluster.done == []
    assert "ps-0: it did not answer for 30 s, but its process computes, so psflow waits for it" in caplog.text
    cluster.answer = {SLOT: False}
    for _ in range(LOOKS + 1):
        cluster.look()
    assert cluster.done == [(PS, ENDED), [SLOT]]


def test_a_silent_worker_is_named_and_not_ended(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(LOOKS + 1):
        cluster.look(running=WORKER)
    assert cluster.done == []
    words = (
        "worker-1: it did not answer for 30 s; psflow does not end it, because the others can go on without it; its "
        f"Dask worker is {SLOT}"
    )
    assert caplog.messages == [words]


def test_time_in_which_nobody_could_look_is_nobodys_silence(cluster: Cluster) -> None:
    cluster.look()
    cluster.look(1e6)  # the owner was stopped, or the scheduler, or all of the machine
    cluster.look(1e6)
    assert cluster.done == []
    cluster.look(1e6)
    assert cluster.done == [(PS, ENDED), [SLOT]]


def test_where_heartbeats_are_rare_four_of_them_have_to_be_missed(cluster: Cluster) -> None:
    worker = {"last_seen": 1.0, "metrics": {}}
    for _ in range(7):  # of ten seconds each; one of 3000 Dask workers has a heartbeat each 16 s
        cluster.now += 10.0
        cluster.probe.look([PS], {SLOT: worker} | {f"tcp://h:{i}": worker for i in range(2, 3001)})
    assert cluster.done == []
    cluster.now += 10.0
    cluster.probe.look([PS], {SLOT: worker} | {f"tcp://h:{i}": worker for i in range(2, 3001)})
    wait(cluster.probe._under_way.values(), HANG_SECS)
    assert cluster.done == [(PS, ENDED.replace("30 s", "64 s")), [SLOT]]


def test_an_answer_of_the_scheduler_counts_once(cluster: Cluster) -> None:
    worker = {SLOT: {"last_seen": 1.0, "metrics": {}}}
    for _ in range(100):
        cluster.now += 5
        cluster.probe.look([PS], worker)
    assert cluster.done == []


def test_an_end_that_fails_is_tried_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.failure = OSError("the connection broke")
    for _ in range(2 * (LOOKS + 1)):
        cluster.look()
    assert cluster.done == [(PS, ENDED), [SLOT]] * 2
    assert "could not be ended, psflow tries again: OSError('the connection broke')" in caplog.text


def test_a_slot_is_asked_about_once_at_a_time_and_a_lost_one_not_at_all(cluster: Cluster) -> None:
    other = RunningIncarnation(RoleId.parse("chief-0"), 65536, SLOT)
    for _ in range(LOOKS + 1):
        cluster.now += TIMEOUT_SECS / LOOKS
        cluster.probe.look([PS, other], {SLOT: {"last_seen": 1.0, "metrics": {}}})
    wait(cluster.probe._under_way.values(), HANG_SECS)
    assert cluster.done == [(PS, ENDED), [SLOT]]
    for _ in range(2 * (LOOKS + 1)):
        cluster.now += TIMEOUT_SECS / LOOKS
        cluster.probe.look([PS], {})
    assert len(cluster.done) == 2


@pytest.mark.parametrize(
    ("what", "processor_secs", "runnable", "busy"),
    [
        ("serve", [5.0, 5.0], True, False),
        ("serve", [5.0, 5.125], True, False),
        ("serve", [5.0, 5.25], False, True),
        ("answer", [5.0, 5.0], False, False),
        ("answer", [5.0, 5.0], True, True),
        ("answer", [5.0, 5.03125], False, True),
        ("answer", [5.0, None], True, False),
    ],
)
def test_a_nanny_tells_a_process_that_computes_from_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, what: Any, processor_secs: list[float | None], runnable: bool, busy: bool
) -> None:
    def cpu_times() -> Any:
        secs = processor_secs.pop(0)
        if secs is None:
            raise module.psutil.NoSuchProcess(7)
        return SimpleNamespace(user=secs - 1, system=1.0)

    monkeypatch.setattr(module.psutil, "Process", lambda pid: SimpleNamespace(cpu_times=cpu_times))
    monkeypatch.setattr(module, "WATCH_SECS", 0.0)
    monkeypatch.setattr(module, "is_runnable", lambda pid: runnable)
    assert asyncio.run(is_busy(what, SimpleNamespace(pid=7))) is busy  # type: ignore[arg-type]


@pytest.mark.process
def test_who_runs_is_runnable_and_who_is_stopped_is_not() -> None:
    assert is_runnable(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as stopped:
        stopped.send_signal(signal.SIGSTOP)
        os.waitpid(stopped.pid, os.WUNTRACED)
        assert not is_runnable(stopped.pid)
        stopped.kill()
    assert not is_runnable(stopped.pid)


def test_a_nanny_without_a_process_says_that_nothing_computes() -> None:
    assert asyncio.run(is_busy("answer", SimpleNamespace(pid=None))) is False  # type: ignore[arg-type]
