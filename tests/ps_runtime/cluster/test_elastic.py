"""Jobs whose number of workers changes while they train: slots that come, ``psflow scale``, adaptive clusters."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

from psflow import (
    Dataset,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    GradientDescent,
    RunConfig,
    TrainSpec,
    get_variable,
    train_and_evaluate,
)
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import CapacityError, UsageError
from psflow.ps_runtime.estimator import attempt as attempt_module
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import Event, FirstStep, RoleLost, RoleStarted
from tests.limits import HANG_SECS

pytestmark = pytest.mark.cluster


NUM_RECORDS, BATCH_SIZE, NUM_EPOCHS = 400, 4, 100


def counter_in(model_dir: Path, *, sleeps_until: Path | None = None) -> Estimator:
    """Return a model that counts the updates and the uses of each record, and is slow until there is a file."""

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        if sleeps_until is not None and not sleeps_until.exists():
            time.sleep(0.01)
        num_updates = get_variable("num_updates", initializer=0.0)
        used = get_variable("used", initializer=np.zeros(NUM_RECORDS, np.float32))
        counts = np.bincount(labels, minlength=NUM_RECORDS).astype(np.float32)
        train_op = GradientDescent(1.0).apply_gradients({"num_updates": np.float32(-1), "used": -counts})
        return EstimatorSpec(mode, loss=np.float32(0) + 0 * num_updates + 0 * used.sum(), train_op=train_op)

    return Estimator(model_fn, config=RunConfig(str(model_dir), save_checkpoints_steps=1000))


def records() -> Dataset:
    numbers = np.arange(NUM_RECORDS)
    return Dataset({"x": numbers.astype(np.float32)}, numbers, BATCH_SIZE).repeat(NUM_EPOCHS)


@contextmanager
def local_cluster(num_workers: int, scratch: Path) -> Iterator[tuple[LocalCluster, Client]]:
    """Open a cluster as users of Dask do."""
    with (
        dask.config.set({"temporary-directory": str(scratch / "dask")}),
        LocalCluster(
            n_workers=num_workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield cluster, client


def test_workers_join_as_slots_come_and_follow_the_number_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_module, "RENEW_SECS", 0.2)
    events: list[Event] = []
    stop, model_dir = tmp_path / "stop", str(tmp_path / "job")
    counter = counter_in(tmp_path / "job", sleeps_until=stop)

    def num_begun(role: str) -> int:
        return sum(isinstance(event, FirstStep) and event.role == role for event in events)

    def slots() -> set[str]:
        return {str(role) for role in run._supervisor.slots()}

    with (
        local_cluster(3, tmp_path) as (cluster, client),
        Attempt(counter, TrainSpec(records), (), num_workers=3) as attempt,
        ClusterJob(client, attempt.job(), events.append, usual_workers=1, wanted_workers=attempt.wanted_workers) as run,
    ):
        attempt.note_workers(0)
        scenes: list[tuple[Callable[[], bool], Callable[[], object]]] = [
            (lambda: num_begun("worker-0") == 1, lambda: cluster.scale(5)),
            (lambda: num_begun("worker-1") == num_begun("worker-2") == 1, lambda: JobFile(model_dir).want_workers(1)),
            (lambda: slots() == {"ps-0", "chief-0", "worker-0"}, lambda: JobFile(model_dir).want_workers(2)),
            (lambda: num_begun("worker-1") == 2, stop.touch),
        ]
        deadline = Deadline(3 * HANG_SECS)

        def check() -> None:
            assert not deadline.has_passed, f"{len(scenes)} scenes are left"
            if scenes and scenes[0][0]():
                scenes.pop(0)[1]()

        run.start(AdmissionPolicy(HANG_SECS))
        reports = run.join(check)
    assert scenes == []
    assert not [event for event in events if isinstance(event, RoleLost)]
    assert reports.keys() == {"ps-0", "chief-0", "worker-0", "worker-1"}
    assert counter.get_variable_value("num_updates") == NUM_EPOCHS * NUM_RECORDS // BATCH_SIZE
    np.testing.assert_array_equal(counter.get_variable_value("used"), np.full(NUM_RECORDS, NUM_EPOCHS))


def test_a_job_that_is_scaled_before_its_workers_start_starts_without_them(tmp_path: Path) -> None:
    """The number is that of a retried attempt, whose own file has none."""
    events: list[Event] = []
    with (
        open_cluster(None, 4, 300) as client,
        Attempt(counter_in(tmp_path / "job"), TrainSpec(records), (), num_workers=2) as attempt,
        ClusterJob(client, attempt.job(), events.append, wanted_workers=lambda: 0) as run,
    ):
        run.start(AdmissionPolicy(HANG_SECS))
        reports = run.join()
    assert {event.role for event in events if isinstance(event, RoleStarted)} == {"ps-0", "chief-0"}
    assert reports.keys() == {"ps-0", "chief-0"}


def test_an_attempt_that_is_entered_again_has_not_been_scaled(tmp_path: Path) -> None:
    attempt = Attempt(counter_in(tmp_path / "job"), TrainSpec(records), (), num_workers=2)
    with attempt:
        attempt._wanted_workers = 1
    with attempt:
        assert attempt.wanted_workers() is None


def test_a_job_whose_workers_read_data_of_their_own_is_not_scaled(tmp_path: Path) -> None:
    spec = TrainSpec(records, each_worker_reads_all=True)
    with Attempt(counter_in(tmp_path / "job"), spec, (), num_workers=2) as attempt:
        attempt.note_workers(0)
        with pytest.raises(UsageError, match=r"may have 2 to 2 workers, got 1$"):
            JobFile(str(tmp_path / "job")).want_workers(1)


def test_an_adaptive_cluster_grows_as_each_job_needs_it_and_shrinks_after_it(tmp_path: Path) -> None:
    with local_cluster(0, tmp_path) as (cluster, client):
        adaptive = cluster.adapt(minimum=0, maximum=20, interval="200ms")
        for name in ("first", "second"):  # the scheduler then knows how long roles take
            counter = counter_in(tmp_path / name)
            eval_spec = EvalSpec(records, steps=1)
            train_and_evaluate(counter, TrainSpec(records, 400), eval_spec, client=client, num_workers=1, min_workers=0)
            assert client.run_on_scheduler(num_tasks) == 0
            deadline = Deadline(HANG_SECS)
            while cluster.workers and not deadline.has_passed:
                time.sleep(0.1)
            assert not cluster.workers
            # one more than its roles, if its ps is slow to start
            assert max(change["n"] for _, change in adaptive.log if change["status"] == "up") <= 5
            assert counter.get_variable_value("num_updates") == 400


def num_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def test_a_cluster_that_does_not_grow_is_refused_at_once_and_one_that_grows_too_little_later(tmp_path: Path) -> None:
    counter = counter_in(tmp_path / "job")
    with (
        local_cluster(0, tmp_path) as (cluster, client),
        Attempt(counter, TrainSpec(records, 400), (), num_workers=1) as attempt,
        ClusterJob(client, attempt.job(), pytest.fail) as run,
    ):
        with pytest.raises(CapacityError, match=r"3 roles, .* has 0 free slots"):
            run.start(AdmissionPolicy(HANG_SECS))
        cluster.adapt(minimum=1, maximum=1, interval="100ms")
        client.wait_for_workers(1, HANG_SECS)
        with pytest.raises(CapacityError, match=r"3 roles, .* has 1 free slots"):
            run.start(AdmissionPolicy(2.0))
