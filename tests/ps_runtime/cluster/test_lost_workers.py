"""Dask workers that are lost at any moment: whoever waits for them is told, within seconds and in words."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Status
from tornado.iostream import IOStream
from tornado.tcpclient import TCPClient

from psflow import (
    Estimator,
    EstimatorSpec,
    GradientDescent,
    RunConfig,
    SessionRunHook,
    TrainSpec,
    get_variable,
)
from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.cluster import connecting, membership
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import kill_local_workers, open_cluster
from psflow.ps_runtime.cluster.fork_server import start_fork_server
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.cluster.scheduler_rpc import SILENCE_SECS, SchedulerPoll
from psflow.ps_runtime.errors import ClusterError, RoleFailedError, WaitTimeoutError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.event_codec import encode_event
from psflow.ps_runtime.roles.events import Checkpoint, Evaluation, Event, FirstStep, Restored, RoleLost, RoleStarted
from psflow.ps_runtime.specs.roles import RoleId
from tests.limits import HANG_SECS
from tests.ps_runtime.cluster.test_training import EVAL, endless, estimator

pytestmark = pytest.mark.cluster


def updates(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """Count the updates in a variable."""
    time.sleep(0.002)
    num_updates = get_variable("num_updates", initializer=0.0)
    train_op = GradientDescent(1.0).apply_gradients({"num_updates": np.float32(-1)})
    return EstimatorSpec(mode, loss=np.mean(labels**2) + 0 * num_updates, train_op=train_op)


class StopOnFile(SessionRunHook):
    """Ends training once there is a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Look for it."""
        if run_context.session.is_chief and self.path.exists():
            run_context.request_stop()


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
        assert len(stopped) == 1
        assert psutil.wait_procs(stopped, HANG_SECS)[1] == []
    finally:
        for process in psutil.wait_procs(stopped, 0)[1]:
            process.kill()


def test_a_role_is_missed_though_nobody_tells_that_its_worker_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "POLL_SECS", 0.3)
    with open_cluster(None, 4, 300) as client:
        pids = client.run(os.getpid)

        with (
            Attempt(estimator(tmp_path), TrainSpec(endless, 10**8), EVAL, num_workers=1) as attempt,
            ClusterJob(client, attempt.job(), lambda event: None, max_restarts=0) as run,
        ):
            run.start(AdmissionPolicy(10))
            client.subscribe_topic("all", lambda event: None)  # a client keeps only the last handler
            os.kill(pids[slot_of(run, "evaluator-0")], signal.SIGKILL)  # whom no other role misses
            with pytest.raises(RoleFailedError, match=r"^evaluator-0 failed: its Dask worker tls://.* was lost"):
                run.join(before(time.monotonic() + 300))


def test_a_job_hears_of_its_dask_workers_also_after_another_one_of_the_same_client(tmp_path: Path) -> None:
    jobs = []
    with (
        open_cluster(None, 5, 300) as client,
        Attempt(estimator(tmp_path / "1"), TrainSpec(endless, 10**8), EVAL) as attempt,
        Attempt(estimator(tmp_path / "2"), TrainSpec(endless, 10**8), ()) as other,
        # it asks the scheduler once, and then never again
        ClusterJob(client, attempt.job(), lambda event: None, 0, probe_timeout_secs=100 * HANG_SECS) as run,
    ):
        run._membership._poll._every_secs = 100 * HANG_SECS
        run.start(AdmissionPolicy(10))
        with ClusterJob(client, other.job(), lambda event: None) as second:
            second.start(AdmissionPolicy(10))
            jobs.append(weakref.ref(second))
        os.kill(client.run(os.getpid)[slot_of(run, "evaluator-0")], signal.SIGKILL)  # whom no other role misses
        with pytest.raises(RoleFailedError, match=r"^evaluator-0 failed: its Dask worker tls://.* was lost"):
            run.join(before(time.monotonic() + HANG_SECS))
        del second
        gc.collect()
        assert jobs[0]() is None  # the client holds no job that is over


def slot_of(run: ClusterJob, role: str) -> str:
    return run._supervisor.slots()[RoleId.parse(role)]


def before(deadline: float) -> Callable[[], None]:
    def check() -> None:
        assert time.monotonic() < deadline, "nobody missed the role"

    return check


def test_a_role_that_dask_begins_again_has_failed(tmp_path: Path) -> None:
    with (
        open_cluster(None, 3, 300) as client,
        Attempt(estimator(tmp_path), TrainSpec(endless, 10**8), EVAL) as attempt,
        ClusterJob(client, attempt.job(), lambda event: None, max_restarts=0) as run,
    ):
        run.start(AdmissionPolicy(10))
        again = RoleStarted("h", role="ps-0", incarnation=run.job.first_incarnation, number=1)
        client.log_event(f"psflow-{run.job.job_id}-{run.job.attempt}", encode_event(again))
        with pytest.raises(RoleFailedError, match=r"^ps-0 failed: it was lost, and Dask started it again"):
            run.join(before(time.monotonic() + 300))


def test_a_lost_worker_and_a_lost_evaluator_begin_again_while_the_others_train_on(tmp_path: Path) -> None:
    events: list[Event] = []
    killed: list[str] = []
    stop = tmp_path / "stop"
    deadline = time.monotonic() + 300
    counting = Estimator(updates, str(tmp_path / "job"), RunConfig(tf_random_seed=1, save_checkpoints_steps=50))
    train_spec = TrainSpec(endless, hooks=[StopOnFile(stop)])
    with (
        open_cluster(None, 5, 300) as client,
        Attempt(counting, train_spec, EVAL, num_workers=2) as attempt,
        ClusterJob(client, attempt.job(), events.append) as run,
    ):
        pids = client.run(os.getpid)
        first_life = run.job.first_incarnation

        def check() -> None:
            assert time.monotonic() < deadline, f"killed {killed}"
            num_saved = sum(isinstance(event, Checkpoint) for event in events)
            if len(killed) < 2 and num_saved > 2 * (len(killed) + 1):
                killed.append(("worker-0", "evaluator-0")[len(killed)])
                os.kill(pids[slot_of(run, killed[-1])], signal.SIGKILL)
            begun = [event for event in events if isinstance(event, FirstStep | Evaluation)]
            if {event.role for event in begun if event.incarnation > first_life} == set(killed) and len(killed) == 2:
                stop.touch()

        run.start(AdmissionPolicy(10))
        reports = run.join(check)
    losses = [event for event in events if isinstance(event, RoleLost)]
    assert [(event.role, event.incarnation) for event in losses] == [(role, first_life) for role in killed]
    assert all(re.fullmatch(r"its Dask worker tls://\S+ was lost", event.reason) for event in losses)
    assert set(reports) == {"ps-0", "chief-0", "worker-0", "worker-1", "evaluator-0"}
    final_step = reports["chief-0"]["statistics"]["job"]["global_step"]
    assert counting.get_variable_value("num_updates") == final_step  # each push counts once
    evaluated = [record.global_step for record in EvaluationLog(str(tmp_path / "job")).read()]
    assert evaluated == sorted(set(evaluated))
    assert evaluated[-1] == final_step


def test_one_training_replica_whose_ps_and_chief_were_lost_has_the_bits_of_an_undisturbed_one(tmp_path: Path) -> None:
    events: list[Event] = []
    killed: list[str] = []
    job_dir, local_dir = tmp_path / "job", tmp_path / "local"
    estimator(local_dir).train(endless, max_steps=1000)
    with (
        open_cluster(None, 4, 300) as client,
        Attempt(estimator(job_dir), TrainSpec(endless, 1000), EVAL, num_ps=2) as attempt,
        ClusterJob(client, attempt.job(), events.append) as run,
    ):

        def check() -> None:
            num_saved = sum(isinstance(event, Checkpoint) for event in events)
            num_first_steps = sum(isinstance(event, FirstStep) for event in events)
            if len(killed) < 2 and num_first_steps > len(killed) and num_saved > 3 * (len(killed) + 1):
                killed.append(("ps-1", "chief-0")[len(killed)])
                os.kill(client.run(os.getpid)[slot_of(run, killed[-1])], signal.SIGKILL)

        run.start(AdmissionPolicy(10))
        reports = run.join(check)
    losses = [event for event in events if isinstance(event, RoleLost)]
    assert [(event.role, event.rolls_back) for event in losses] == [("ps-1", True), ("chief-0", False)]
    assert sum(isinstance(event, Restored) for event in events) == 1
    assert reports["chief-0"]["statistics"]["job"]["global_step"] == 1000
    train = reports["chief-0"]["statistics"]["train"]
    first_step_at = min(event.time for event in events if isinstance(event, FirstStep))
    assert train["steps"] == 1000
    assert train["secs"] >= losses[-1].time - first_step_at  # from before the losses on
    for name in ("w", "b"):
        values = [estimator(directory).get_variable_value(name) for directory in (job_dir, local_dir)]
        np.testing.assert_array_equal(*values)
    assert sorted(EvaluationLog(str(job_dir)).evaluated("")) == list(range(0, 1001, 50))


def test_a_scheduler_that_is_silent_for_minutes_is_given_up() -> None:
    now = 0.0

    async def ncores(scheduler: Any) -> Any:
        return await scheduler.ncores()

    with open_cluster(None, 1, 300) as client:
        poll = SchedulerPoll(client, ncores, 5.0, clock=lambda: now)
        goes_on = threading.Event()
        client.loop.add_callback(goes_on.wait, 30)
        try:
            for _ in range(int(SILENCE_SECS)):
                assert poll.look() is None
                now += 1
            with pytest.raises(
                WaitTimeoutError,
                match=r"^the Dask scheduler at tls://127\.0\.0\.1:\d+ did not answer within 300 s: check",
            ):
                poll.look()
        finally:
            goes_on.set()
            poll.close()


def test_workers_of_clusters_of_this_process_can_be_killed_by_who_waits_no_more() -> None:
    with open_cluster(None, 1, 300) as client:
        [pid] = client.run(os.getpid).values()
        worker = psutil.Process(pid)
        kill_local_workers()
        worker.wait(200)
    kill_local_workers()


def test_a_connection_that_was_given_up_while_it_was_made_ends_with_the_cluster() -> None:
    with open_cluster(None, 1, 300) as client:
        port = int(client.scheduler_info()["address"].rpartition(":")[2])

        async def connect_without_tls() -> IOStream:
            return await TCPClient().connect("127.0.0.1", port)

        abandoned = client.sync(connect_without_tls).socket
        assert abandoned.fileno() != -1
    assert abandoned.fileno() == -1


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
