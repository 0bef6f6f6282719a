"""Losses of everything at once: all worker processes, the scheduler; and a job that begins with fewer workers."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client, SpecCluster

from psflow import Estimator, RunConfig, StepDeadline, Sync, TrainSpec
from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.cluster import connecting
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import CapacityError, RoleFailedError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import (
    Checkpoint,
    Event,
    FirstStep,
    PsListening,
    RoleEnded,
    RoleLost,
    WorkersMissing,
)
from tests.acceptance.light_job import (
    HOLD_SECS,
    HoldLastEvaluation,
    HoldOn,
    StopOnFile,
    count_updates,
    endless_rows,
    evals,
)
from tests.acceptance.test_lost_roles import dask_process
from tests.free_ports import free_port
from tests.ps_runtime.cluster.test_lost_workers import before
from tests.ps_runtime.cluster.test_training import endless, estimator

pytestmark = [pytest.mark.piece(number=4), pytest.mark.ci, pytest.mark.timeout(600), pytest.mark.cluster]

TIMEOUT_SECS = HOLD_SECS
PATIENT = StepDeadline(min_secs=120.0)
"""For a worker that a busy machine stops for seconds: it is not lost by that."""


def kill_all(cluster: SpecCluster) -> None:
    """Kill all worker processes, those without a role first: a role then moves to none that is killed next."""
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    processes = {process.pid: process for process in psutil.Process(server._forkserver_pid).children()}
    assert cluster.scheduler is not None
    workers, in_time = cluster.scheduler.workers, before(time.monotonic() + TIMEOUT_SECS)
    pids = {nanny.worker_address: nanny.pid for nanny in cluster.workers.values()}
    free = {address for address, worker in list(workers.items()) if address in pids and not worker.processing}
    for address in free:
        processes.pop(pids[address]).kill()
    while free & set(workers):
        in_time()
        time.sleep(0.01)
    for process in processes.values():
        process.kill()  # their nannies start others


def close_all(cluster: SpecCluster) -> None:
    """Kill all worker processes, and have their nannies give up."""

    async def close() -> None:
        for nanny in list(cluster.workers.values()):
            with suppress(TimeoutError):  # of a process that is just starting: it is killed, and gone a moment later
                await nanny.close(timeout=0.1)

    kill_all(cluster)
    cluster.sync(close)


def test_a_job_whose_worker_processes_are_all_killed_goes_on_in_each_phase(tmp_path: Path) -> None:
    events: list[Event] = []
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=50, step_deadline=PATIENT)
    counting = Estimator(count_updates, str(tmp_path / "job"), config)
    holding = HoldOn(tmp_path)
    holding_last = HoldLastEvaluation(tmp_path, 400)
    holding_later = HoldOn(tmp_path, 200)
    train_spec = TrainSpec(endless_rows, 400, saving_listeners=[holding, holding_later])
    in_time = before(time.monotonic() + TIMEOUT_SECS)
    phases: list[tuple[Callable[[], bool], Callable[[SpecCluster], None]]] = [
        (lambda: any(isinstance(event, PsListening) for event in events), kill_all),
        (holding.held.exists, kill_all),
        (holding_later.held.exists, close_all),
        (lambda: has_ended("chief-0") and holding_last.held.exists(), kill_all),
    ]

    def has_ended(role: str) -> bool:
        return any(isinstance(event, RoleEnded) and event.role == role for event in events)

    with (
        open_cluster(None, 4, TIMEOUT_SECS) as client,
        Attempt(counting, train_spec, evals([holding_last]), num_workers=1) as attempt,
        ClusterJob(client, attempt.job(), events.append, max_restarts=4) as run,
    ):
        [cluster] = connecting._open

        def check() -> None:
            in_time()
            if phases and phases[0][0]():
                phases.pop(0)[1](cluster)

        run.start(AdmissionPolicy(TIMEOUT_SECS, is_kept=True), check)
        reports = run.join(check)
    assert not phases
    assert len({event.incarnation for event in events if isinstance(event, RoleLost)}) >= 4
    assert reports["chief-0"]["statistics"]["job"]["global_step"] == 400
    assert counting.get_variable_value("num_updates") == 400
    assert [record.global_step for record in EvaluationLog(str(tmp_path / "job")).read()] == list(range(0, 401, 50))


def test_a_job_waits_for_a_cluster_of_our_own_that_has_just_lost_its_workers(tmp_path: Path) -> None:
    in_time = before(time.monotonic() + TIMEOUT_SECS)
    with (
        open_cluster(None, 2, TIMEOUT_SECS) as client,
        Attempt(estimator(tmp_path), TrainSpec(endless, 20), None) as attempt,
        ClusterJob(client, attempt.job(), lambda event: None) as run,
    ):
        [cluster] = connecting._open
        close_all(cluster)
        with pytest.raises(CapacityError):
            run.start(AdmissionPolicy(60))
        run.start(AdmissionPolicy(TIMEOUT_SECS, is_kept=True), in_time)
        reports = run.join(in_time)
    assert reports["chief-0"]["statistics"]["job"]["global_step"] == 20


def test_a_job_begins_with_fewer_workers_and_the_missing_one_comes_later(tmp_path: Path) -> None:
    events: list[Event] = []
    stop = tmp_path / "stop"
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=50, consistency=Sync(), step_deadline=PATIENT)
    counting = Estimator(count_updates, str(tmp_path / "job"), config)
    in_time = before(time.monotonic() + TIMEOUT_SECS)
    with (
        open_cluster(None, 3, TIMEOUT_SECS) as client,
        Attempt(counting, TrainSpec(endless_rows, hooks=[StopOnFile(stop)]), None, num_workers=2) as attempt,
        ClusterJob(client, attempt.job(), events.append, min_workers=1) as run,
    ):
        [cluster] = connecting._open

        def check() -> None:
            in_time()
            if any(isinstance(event, Checkpoint) and event.step >= 50 for event in events):
                cluster.worker_spec.setdefault(3, cluster.worker_spec[0])  # one more
            if any(isinstance(event, FirstStep) and event.role == "worker-1" for event in events):
                stop.touch()

        run.start(AdmissionPolicy(TIMEOUT_SECS), check)
        reports = run.join(check)
    told = [(event.num_missing, event.num_workers) for event in events if isinstance(event, WorkersMissing)]
    assert told == [(1, 2), (0, 2)]
    assert set(reports) == {"ps-0", "chief-0", "worker-0", "worker-1"}
    assert counting.get_variable_value("num_updates") == reports["chief-0"]["statistics"]["job"]["global_step"]


def test_a_scheduler_that_is_killed_is_named_and_the_job_resumes_with_the_same_bits(tmp_path: Path) -> None:
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    in_time = before(time.monotonic() + TIMEOUT_SECS)
    holding = HoldOn(tmp_path, 150)

    @contextmanager
    def job(events: list[Event]) -> Iterator[tuple[ClusterJob, subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
        common = ["--no-dashboard", "--host", "127.0.0.1"]
        of_worker = [address, "--no-nanny", "--nthreads", "2", *common]
        with (
            dask_process(tmp_path, "scheduler", "--port", str(port), *common) as scheduler,
            dask_process(tmp_path, "worker", *of_worker) as worker,
            Client(address, timeout=TIMEOUT_SECS) as client,
            Attempt(estimator(tmp_path / "job"), TrainSpec(endless, 300, saving_listeners=[holding]), None) as attempt,
        ):
            client.wait_for_workers(1, timeout=TIMEOUT_SECS)
            with ClusterJob(client, attempt.job(), events.append) as run:
                run.start(AdmissionPolicy(TIMEOUT_SECS), in_time)
                yield run, scheduler, worker

    events: list[Event] = []
    with job(events) as (run, scheduler, worker):

        def kill() -> None:
            in_time()
            if holding.held.exists():
                scheduler.kill()
                holding.go.touch()

        with pytest.raises(RoleFailedError, match=rf"^the Dask scheduler at {address} failed: the connection to it br"):
            run.join(kill)
        worker.wait(TIMEOUT_SECS)  # the process of the roles ends by itself
    with job([]) as (run, _, _):
        reports = run.join(in_time)
    assert reports["chief-0"]["statistics"]["job"]["global_step"] == 300
    estimator(tmp_path / "local").train(endless, max_steps=300)
    for name in ("w", "b"):
        values = [estimator(tmp_path / directory).get_variable_value(name) for directory in ("job", "local")]
        np.testing.assert_array_equal(*values)
