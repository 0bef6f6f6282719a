"""Dask workers that are lost at any moment: whoever waits for them is told, within seconds and in words."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Status

from psflow import TrainSpec
from psflow.ps_runtime.cluster import connecting, presence
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import kill_local_workers, open_cluster
from psflow.ps_runtime.cluster.fork_server import start_fork_server
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.cluster.presence import SILENCE_SECS, Presence
from psflow.ps_runtime.errors import ClusterError, RoleFailedError, WaitTimeoutError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.event_codec import encode_event
from psflow.ps_runtime.roles.events import RoleStarted
from tests.ps_runtime.cluster.test_training import EVAL, endless, estimator

pytestmark = pytest.mark.cluster


@contextmanager
def first_worker(do: Callable[[psutil.Process], None]) -> Iterator[None]:
    """Do something to the first process that is started as a worker within the block."""
    start_fork_server()
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    pid = server._forkserver_pid
    children = Path(f"/proc/{pid}/task/{pid}/children")  # quicker than a look at all processes: it must not come late
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set() and not (found := children.read_text().split()):
            pass
        if not is_over.is_set():
            do(psutil.Process(int(found[0])))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_worker_that_dies_as_it_starts_is_told_of() -> None:
    with (
        first_worker(psutil.Process.kill),
        pytest.raises(ClusterError, match=r"^a Dask cluster of 2 workers did not start .* ended before it was ready"),
        open_cluster(None, 2, 300),
    ):
        pass


def test_a_worker_that_never_comes_up_is_not_waited_for_for_ever() -> None:
    stopped: list[psutil.Process] = []

    def stop(process: psutil.Process) -> None:
        process.suspend()
        stopped.append(process)

    try:
        with (
            first_worker(stop),
            pytest.raises(ClusterError, match=r"a worker process was not ready after 2 s; check that"),
            open_cluster(None, 2, 2.0),
        ):
            pass
    finally:
        for process in stopped:
            process.kill()


def test_a_role_is_missed_though_nobody_tells_that_its_worker_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "LOOK_SECS", 0.3)
    with open_cluster(None, 4, 300) as client:
        pids = client.run(os.getpid)

        with (
            Attempt(estimator(tmp_path), TrainSpec(endless, 10**8), EVAL, num_workers=1) as attempt,
            ClusterJob(client, attempt.job(), lambda event: None) as run,
        ):
            run.start(AdmissionPolicy(10))
            client.unsubscribe_topic("all")  # as another job on the same client does when it ends
            client.subscribe_topic("all", lambda event: None)
            os.kill(pids[run._slots[run.job.roles[-1]]], signal.SIGKILL)  # whom no other role misses
            with pytest.raises(RoleFailedError, match=r"^evaluator-0 failed: its Dask worker tls://.* was lost"):
                run.join(before(time.monotonic() + 300))


def before(deadline: float) -> Callable[[], None]:
    def check() -> None:
        assert time.monotonic() < deadline, "nobody missed the role"

    return check


def test_a_role_that_dask_begins_again_has_failed(tmp_path: Path) -> None:
    with (
        open_cluster(None, 3, 300) as client,
        Attempt(estimator(tmp_path), TrainSpec(endless, 10**8), EVAL) as attempt,
        ClusterJob(client, attempt.job(), lambda event: None) as run,
    ):
        run.start(AdmissionPolicy(10))
        client.log_event(f"psflow-{run.job.job_id}-{run.job.attempt}", encode_event(RoleStarted(role="ps-0", number=1)))
        with pytest.raises(RoleFailedError, match=r"^ps-0 failed: it was lost, and Dask started it again"):
            run.join(before(time.monotonic() + 300))


def test_a_scheduler_that_is_silent_for_minutes_is_given_up() -> None:
    now = 0.0
    with open_cluster(None, 1, 300) as client:
        [address] = client.nthreads()
        asked = Presence(client, lambda: now)
        goes_on = threading.Event()
        client.loop.add_callback(goes_on.wait, 30)
        try:
            assert asked.missing([address]) == set()
            now = SILENCE_SECS - 1
            assert asked.missing([address]) == set()
            now += 1
            with pytest.raises(WaitTimeoutError, match=r"^the Dask scheduler did not list its workers within 300 s$"):
                asked.missing([address])
        finally:
            goes_on.set()
            asked.close()


def test_workers_of_clusters_of_this_process_can_be_killed_by_who_waits_no_more() -> None:
    with open_cluster(None, 1, 300) as client:
        [pid] = client.run(os.getpid).values()
        worker = psutil.Process(pid)
        kill_local_workers()
        worker.wait(200)
    kill_local_workers()


def test_workers_that_are_killed_while_their_cluster_closes_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_cluster(None, 2, 300):
        [cluster] = connecting._open
        first, last = cluster.workers.values()
        close_last, kills = last.close, [kill_local_workers]

        async def close(**options: Any) -> object:
            if kills:
                kill = kills.pop()
                await first.finished()
                kill()
            return await close_last(**options)

        monkeypatch.setattr(last, "close", close)
    assert not kills
    assert {first.status, last.status} == {Status.closed}
