"""Whole jobs on a real Dask cluster: how they end, whatever the reason."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, Event, LocalCluster, wait

from psflow import (
    Dataset,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    GradientDescent,
    Metrics,
    ModeKeys,
    RunConfig,
    SessionRunArgs,
    SessionRunHook,
    StepDeadline,
    StopAtStepHook,
    TrainSpec,
    get_variable,
    stop_if_lower_hook,
    train_and_evaluate,
)
from psflow.ps_runtime.checkpoint.records import EvaluationLog, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import CapacityError, ModelDirError, RoleFailedError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.model.hooks.base import Coordinator
from psflow.ps_runtime.roles.events import LogMessage, RoleLost
from tests.leak_guard import no_leaks

pytestmark = pytest.mark.cluster(shared=True)

NUM_RECORDS = 96
BATCH_SIZE = 4
NUM_SLOTS = 7


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with no_leaks(), open_cluster(None, NUM_SLOTS, 300) as client:
        yield client


def linear_regression(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    w = get_variable("w", (2,))
    b = get_variable("b")
    predicted = features["x"] @ w + b
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": predicted})
    error = predicted - labels
    gradients = {"w": 2 * features["x"].T @ error / len(error), "b": 2 * error.mean()}
    train_op = GradientDescent(learning_rate=0.05).apply_gradients(gradients)
    return EstimatorSpec(mode, loss=np.mean(error**2), train_op=train_op)


def records() -> Dataset:
    x = np.random.default_rng(3).normal(size=(NUM_RECORDS, 2)).astype(np.float32)
    return Dataset({"x": x}, x @ np.float32([2, -1]) + np.float32(0.5)).batch(BATCH_SIZE)


def endless() -> Dataset:
    return replace(records(), shuffle_seed=5).repeat()


def batches() -> Iterator[Any]:
    data = records()
    for start in range(0, NUM_RECORDS, BATCH_SIZE):
        yield data.read(0, start, start + BATCH_SIZE)


EVAL = EvalSpec(records, None, start_delay_secs=0, throttle_secs=0)


def estimator(model_dir: Path, save_steps: int | None = 50) -> Estimator:
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=save_steps, save_checkpoints_secs=None)
    return Estimator(linear_regression, str(model_dir), config)


def assert_ended_well(reports: dict[str, dict[str, Any]], model_dir: Path, final_step: int) -> None:
    assert {report["exit"] for report in reports.values()} == {"finished"}
    assert reports["chief-0"]["statistics"]["job"]["global_step"] == final_step
    assert CheckpointStore(str(model_dir)).latest() == final_step
    assert final_step in EvaluationLog(str(model_dir)).evaluated("")


def assert_free(client: Client) -> None:
    assert not any(client.processing().values())


@pytest.mark.parametrize(
    ("num_ps", "num_workers", "transport", "used"),
    [(1, 1, "auto", "shm"), (2, 3, "auto", "shm"), (2, 1, "tcp", "tcp"), (1, 1, "unix", "unix")],
)
def test_every_role_ends_by_itself_at_exactly_max_steps(
    client: Client, tmp_path: Path, num_ps: int, num_workers: int, transport: str, used: str
) -> None:
    reports = train_and_evaluate(
        estimator(tmp_path),
        TrainSpec(endless, max_steps=203),
        EVAL,
        client=client,
        num_ps=num_ps,
        num_workers=num_workers,
        transport=transport,
    )
    assert len(reports) == num_ps + num_workers + 2
    assert_ended_well(reports, tmp_path, 203)
    assert EvaluationLog(str(tmp_path)).evaluated("") == {0, 50, 100, 150, 200, 203}
    assert {shard["transport"] for shard in reports["chief-0"]["statistics"]["shards"]} == {used}
    assert_free(client)


@pytest.mark.parametrize("max_steps", [None, 10_000])
@pytest.mark.parametrize("input_fn", [records, batches])
def test_an_input_that_ends_is_used_exactly_once(
    client: Client, tmp_path: Path, input_fn: Any, max_steps: int | None
) -> None:
    train_spec = TrainSpec(input_fn, max_steps)
    reports = train_and_evaluate(estimator(tmp_path), train_spec, EVAL, client=client, num_ps=2, num_workers=2)
    assert_ended_well(reports, tmp_path, NUM_RECORDS // BATCH_SIZE)
    job = reports["chief-0"]["statistics"]["job"]
    assert (job["examples"], job["epochs_completed"], job["repeats"], job["misses"]) == (NUM_RECORDS, 1, 0, 0)
    assert_free(client)


def part_of_a_worker(input_context: Any) -> Iterator[Any]:
    return batches() if input_context.input_pipeline_id == 1 else iter(())


def test_the_part_of_the_chief_may_be_empty(client: Client, tmp_path: Path) -> None:
    train_spec = TrainSpec(part_of_a_worker, each_worker_reads_all=True)
    reports = train_and_evaluate(estimator(tmp_path, 10), train_spec, EVAL, client=client, num_workers=2)
    assert_ended_well(reports, tmp_path, NUM_RECORDS // BATCH_SIZE)
    assert reports["worker-0"]["statistics"]["steps"] == NUM_RECORDS // BATCH_SIZE
    assert EvaluationLog(str(tmp_path)).evaluated("") == {0, 10, 20, 24}
    assert_free(client)


def test_a_hook_that_asks_to_stop_ends_the_job_with_a_final_checkpoint(client: Client, tmp_path: Path) -> None:
    train_spec = TrainSpec(endless, max_steps=100_000, hooks=[StopAtStepHook(last_step=60)])
    reports = train_and_evaluate(estimator(tmp_path, None), train_spec, EVAL, client=client, num_workers=2)
    job = reports["chief-0"]["statistics"]["job"]
    assert job["global_step"] == 60
    finished = read_finished(str(tmp_path))
    assert finished is not None
    assert finished.reason == "global_step 60 has reached 60"
    assert {report["exit"] for report in reports.values()} == {"finished"}
    assert CheckpointStore(str(tmp_path)).steps() == []  # none were asked for
    assert_free(client)


class TellFacts(SessionRunHook):
    """Reports where it runs."""

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        config = session.config
        assert config.is_chief == session.is_chief
        assert config.cluster_spec.as_dict() == {"chief": ["chief-0"], "worker": ["worker-0"], "ps": ["ps-0", "ps-1"]}
        session.report(session.global_step, {f"{config.task_type}_is": config.global_id_in_cluster})


def test_the_evaluations_end_training_early_in_every_role(client: Client, tmp_path: Path) -> None:
    model, events = estimator(tmp_path, 20), list[Any]()
    stop = stop_if_lower_hook(model, "loss", 0.01, run_every_secs=None, run_every_steps=1)
    train_spec = TrainSpec(endless, 1_000_000, hooks=[stop, TellFacts()])
    reports = train_and_evaluate(
        model, train_spec, EVAL, client=client, num_ps=2, num_workers=1, on_event=events.append
    )
    finished = read_finished(str(tmp_path))
    assert finished is not None
    assert finished.final_step < 1_000_000
    assert "early stopping at global_step" in finished.reason
    assert_ended_well(reports, tmp_path, finished.final_step)
    facts: dict[str, float] = {}
    for event in events:
        if isinstance(event, Metrics):
            facts |= {name: value for name, value in event.values.items() if name.endswith("_is")}
    assert facts == {"chief_is": 0.0, "role/worker-0/worker_is": 1.0}
    assert_free(client)


class BreakAt(SessionRunHook):
    """Raises at a step, or kills the process of the role."""

    def __init__(self, step: int, kill: bool = False) -> None:
        self.step = step
        self.kill = kill

    def before_run(self, run_context: Any) -> SessionRunArgs:
        return SessionRunArgs("global_step")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_values.results >= self.step:
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("the hook broke")


def test_the_root_cause_of_a_failure_comes_first_and_the_same_call_resumes(client: Client, tmp_path: Path) -> None:
    broken = TrainSpec(endless, max_steps=200, hooks=[BreakAt(120)])
    with pytest.raises(RoleFailedError, match=r"^(chief|worker)-0 failed: ValueError\('the hook broke'\)"):
        train_and_evaluate(estimator(tmp_path), broken, EVAL, client=client, num_ps=2, num_workers=1)
    assert_free(client)
    assert CheckpointStore(str(tmp_path)).latest() in (50, 100)  # files are written beside training
    reports = train_and_evaluate(estimator(tmp_path), TrainSpec(endless, 200), EVAL, client=client, num_workers=1)
    assert_ended_well(reports, tmp_path, 200)


def test_an_interrupted_job_resumes_to_the_same_bits(client: Client, tmp_path: Path) -> None:
    whole, halves = estimator(tmp_path / "whole"), estimator(tmp_path / "halves")
    train_and_evaluate(whole, TrainSpec(endless, 130), EVAL, client=client, num_ps=2, transport="tcp")
    with pytest.raises(RoleFailedError, match="the hook broke"):
        train_and_evaluate(halves, TrainSpec(endless, 130, [BreakAt(77)]), EVAL, client=client, num_ps=1)
    train_and_evaluate(halves, TrainSpec(endless, 130), EVAL, client=client, num_ps=2)
    for name in ("w", "b"):
        np.testing.assert_array_equal(whole.get_variable_value(name), halves.get_variable_value(name))


def start_and_join(run: ClusterJob) -> None:
    run.start(AdmissionPolicy(10))
    run.join()


def test_a_killed_role_that_may_not_begin_again_is_named_and_the_others_leave(tmp_path: Path) -> None:
    train_spec = TrainSpec(endless, max_steps=100_000, hooks=[BreakAt(60, kill=True)])
    with (
        open_cluster(None, 4, 300) as own,  # its workers are restarted; the shared cluster stays as it is
        Attempt(estimator(tmp_path), train_spec, EVAL, num_workers=1) as attempt,
        ClusterJob(own, attempt.job(), lambda event: None, max_restarts=0) as run,
        pytest.raises(RoleFailedError, match=r"(chief|worker)-0 failed: its Dask worker tls://.* was lost$"),
    ):
        start_and_join(run)
    assert estimator(tmp_path).evaluate(records)["global_step"] in (0, 50)  # files are written beside training


def test_more_roles_than_slots_are_refused(client: Client, tmp_path: Path) -> None:
    with pytest.raises(CapacityError, match=r"the job has 12 roles, but the Dask cluster at tls://.* has 7 free slots"):
        train_and_evaluate(estimator(tmp_path), TrainSpec(endless, 10), EVAL, client=client, num_workers=9)
    assert_free(client)


def test_a_second_job_on_a_living_model_dir_is_refused(client: Client, tmp_path: Path) -> None:
    with (
        Attempt(estimator(tmp_path), TrainSpec(endless, 10), None),
        pytest.raises(ModelDirError, match=r"is in use by process \d+"),
    ):
        train_and_evaluate(estimator(tmp_path), TrainSpec(endless, 10), EVAL, client=client)
    assert_free(client)


def test_in_this_process_it_is_the_same(client: Client, tmp_path: Path) -> None:
    here, there = estimator(tmp_path / "here"), estimator(tmp_path / "there")
    reports = train_and_evaluate(here, TrainSpec(endless, 90), EVAL)
    assert_ended_well(reports, tmp_path / "here", 90)
    train_and_evaluate(there, TrainSpec(endless, 90), EVAL, client=client)
    for name in ("w", "b"):
        np.testing.assert_array_equal(here.get_variable_value(name), there.get_variable_value(name))


def test_a_job_that_waits_for_slots_can_be_stopped(client: Client, tmp_path: Path) -> None:
    with client.as_current():
        abandoned = Event("let-go")
    workers = client.scheduler_info(n_workers=-1)["workers"]
    busy = [client.submit(Event.wait, abandoned, timeout=500, pure=False, workers=[address]) for address in workers]
    events: list[Any] = []
    looks = iter([None, None])

    def check() -> None:
        if next(looks, KeyboardInterrupt) is KeyboardInterrupt:
            raise KeyboardInterrupt

    try:
        with (
            Attempt(estimator(tmp_path), TrainSpec(endless, 10), None) as attempt,
            ClusterJob(client, attempt.job(), events.append) as run,
            pytest.raises(KeyboardInterrupt),
        ):
            run.start(AdmissionPolicy(300), check)
    finally:
        abandoned.set()
        wait(busy)
        abandoned.clear()
    assert events == []
    assert_free(client)


class Hesitating(SessionRunHook):
    """Has the first life of a worker wait at its third step until somebody lets it go."""

    def __init__(self, abandoned: str) -> None:
        self._release = Path(abandoned)
        self._num_steps = 0

    def before_run(self, context: Any) -> None:
        self._num_steps += 1
        if not context.session.is_chief and self._num_steps == 3:
            while not self._release.exists():
                time.sleep(0.01)


def test_a_worker_that_is_late_is_replaced_and_dask_logs_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned = tmp_path / "let_go"
    lost: list[RoleLost] = []

    def on_event(event: object) -> None:
        if isinstance(event, LogMessage) and "they go on without it" in event.message:
            abandoned.touch()
        elif isinstance(event, RoleLost):
            lost.append(event)

    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=50, step_deadline=StepDeadline(min_secs=1.0))
    slow = Estimator(linear_regression, str(tmp_path / "job"), config)
    spec = TrainSpec(endless, max_steps=400, hooks=[Hesitating(str(abandoned))])
    with (
        LocalCluster(
            n_workers=4, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path)
        ) as cluster,
        Client(cluster) as client,
    ):
        train_and_evaluate(slow, spec, EVAL, client=client, num_workers=1, on_event=on_event)
        logged = client.get_worker_logs()
    assert {event.role for event in lost} == {"worker-0"}  # a busy machine may make it late once more
    assert [text for of_worker in logged.values() for _, text in of_worker if "Compute Failed" in text] == []
