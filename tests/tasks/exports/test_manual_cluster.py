"""A job whose processes TF_CONFIG names: `train_and_evaluate` is one role in each. Here threads stand for processes."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client

from psflow import (
    Dataset,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    GradientDescent,
    Metrics,
    RunConfig,
    SessionRunHook,
    TrainingExecutor,
    TrainSpec,
    get_variable,
    train_and_evaluate,
)
from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.errors import (
    InputError,
    ModelDirError,
    RoleFailedError,
    StoppedError,
    UsageError,
    WaitTimeoutError,
)
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.model.hooks.base import Coordinator
from psflow.ps_runtime.roles.events import LogMessage
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType
from tests.free_ports import free_address
from tests.limits import HANG_SECS


def line(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    error = get_variable("w") * features - labels
    train_op = GradientDescent(0.1).apply_gradients({"w": 2 * np.mean(error * features)})
    return EstimatorSpec(mode, loss=np.mean(error**2), train_op=train_op)


def records() -> Dataset:
    x = np.linspace(0, 1, 32)
    return Dataset(x, 2 * x).batch(4)


class TellPlace(SessionRunHook):
    """Reports where it runs, and under which address."""

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        config = session.config
        (address,) = config.cluster_spec.as_dict()[config.task_type]
        session.report(session.global_step, {f"port_of_{config.task_type}": int(address.rpartition(":")[2])})


class Break(SessionRunHook):
    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        raise ValueError("the hook broke")


EVAL = EvalSpec(records, steps=None, start_delay_secs=0, throttle_secs=0)


def run(
    task: ClusterTask,
    model_dir: Path,
    train_spec: TrainSpec | None = None,
    call: Callable[..., dict[str, Any]] = train_and_evaluate,
    **options: Any,
) -> dict[str, Any]:
    config = RunConfig(
        cluster=task, save_checkpoints_steps=20, session_creation_timeout_secs=HANG_SECS, tf_random_seed=1
    )
    train_spec = train_spec or TrainSpec(lambda: records().repeat(), 40, [TellPlace()])
    return call(Estimator(line, model_dir, config), train_spec, EVAL, **options)


@pytest.fixture
def beside() -> Iterator[Any]:
    """Give what has a function run beside the test; put the configuration of Dask back, which threads change here."""
    before = copy.deepcopy(dask.config.config)
    with ThreadPoolExecutor() as pool:
        yield pool.submit
    dask.config.config.clear()
    dask.config.config.update(before)


@pytest.mark.cluster
def test_each_process_is_one_role_and_all_end_together(tmp_path: Path, beside: Any) -> None:
    cluster = ClusterAddresses(free_address(), (free_address(),), (free_address(),))
    others = [TaskType.PS, TaskType.WORKER, TaskType.EVALUATOR]
    ends = [beside(run, ClusterTask(cluster, kind, 0), tmp_path) for kind in others]
    events: list[Any] = []

    def log(event: Any) -> None:
        events.append(event)
        logging.getLogger("mine").warning("heard of %s", event)

    reports = run(ClusterTask(cluster, TaskType.CHIEF, 0), tmp_path, on_event=log)
    assert [end.result(HANG_SECS) for end in ends] == [{}, {}, {}]
    assert {role: report["exit"] for role, report in reports.items()} == dict.fromkeys(
        ("ps-0", "chief-0", "worker-0", "evaluator-0"), "finished"
    )
    assert not any("heard of" in event.message for event in events if isinstance(event, LogMessage))
    told = {name: value for event in events if isinstance(event, Metrics) for name, value in event.values.items()}
    ports = {address: float(address.rpartition(":")[2]) for address in (cluster.chief, *cluster.workers)}
    assert told["port_of_chief"] == ports[cluster.chief]
    assert told["role/worker-0/port_of_worker"] == ports[cluster.workers[0]]
    assert [record.global_step for record in EvaluationLog(str(tmp_path)).read()] == [0, 20, 40]
    assert not (tmp_path / "tls").exists()


@pytest.mark.cluster
def test_a_master_evaluates_and_each_process_hears_of_its_own_roles(tmp_path: Path, beside: Any) -> None:
    def ps_by_name(*given: Any, **options: Any) -> dict[str, Any]:
        return TrainingExecutor(*given, **options).run_ps()

    def master_by_name(*given: Any, **options: Any) -> dict[str, Any]:
        return TrainingExecutor(*given, **options).run_master()

    cluster = ClusterAddresses(free_address(), ps=(free_address(),), chief_evaluates=True)
    of_ps: list[Any] = []

    def log(event: Any) -> None:
        of_ps.append(event)
        logging.getLogger("mine").warning("heard of %s", event)

    end = beside(run, ClusterTask(cluster, TaskType.PS, 0), tmp_path, call=ps_by_name, on_event=log)
    reports = run(ClusterTask(cluster, TaskType.MASTER, 0), tmp_path, call=master_by_name)
    assert end.result(HANG_SECS) == {}
    assert set(reports) == {"ps-0", "chief-0", "evaluator-0"}
    assert [record.global_step for record in EvaluationLog(str(tmp_path)).read()] == [0, 20, 40]
    assert {event.role for event in of_ps} == {"ps-0"}


@pytest.mark.cluster
def test_what_one_role_fails_of_ends_all_and_the_same_call_resumes(tmp_path: Path, beside: Any) -> None:
    cluster = ClusterAddresses(free_address(), ps=(free_address(),), chief_evaluates=True)
    ps, master = (ClusterTask(cluster, kind, 0) for kind in (TaskType.PS, TaskType.MASTER))
    end = beside(run, ps, tmp_path, TrainSpec(records, 8))
    with pytest.raises(RoleFailedError, match=r"^chief-0 failed: ValueError\('the hook broke'\)"):
        run(master, tmp_path, TrainSpec(records, 8, [Break()]))
    with pytest.raises(
        StoppedError, match=r"^ps-0 was stopped: the chief at localhost:\d+ ended the job: chief-0 failed"
    ):
        end.result(HANG_SECS)
    end = beside(run, ps, tmp_path)
    assert run(master, tmp_path)["chief-0"]["exit"] == "finished"
    assert end.result(HANG_SECS) == {}


def no_records() -> Dataset:
    raise ValueError("no such table")


@pytest.mark.cluster
def test_what_the_plan_fails_of_ends_all_and_the_same_call_starts_again(tmp_path: Path, beside: Any) -> None:
    cluster = ClusterAddresses(free_address(), ps=(free_address(),), chief_evaluates=True)
    ps, master = (ClusterTask(cluster, kind, 0) for kind in (TaskType.PS, TaskType.MASTER))
    end = beside(run, ps, tmp_path, TrainSpec(records, 8))
    words = r"test_manual_cluster:no_records raised ValueError in train mode at \S+: no such table"
    with pytest.raises(InputError, match=rf"{words}$"):
        run(master, tmp_path, TrainSpec(no_records, 8))
    with pytest.raises(StoppedError, match=rf" ended the job: it failed while it planned: \S+{words}; see its output$"):
        end.result(HANG_SECS)
    end = beside(run, ps, tmp_path, TrainSpec(records, 8))
    assert run(master, tmp_path, TrainSpec(records, 8))["chief-0"]["exit"] == "finished"
    assert end.result(HANG_SECS) == {}


@pytest.mark.cluster
def test_the_chief_waits_as_long_as_the_configuration_says(tmp_path: Path) -> None:
    cluster = ClusterAddresses(free_address(), ps=("localhost:1",))
    config = RunConfig(cluster=ClusterTask(cluster, TaskType.CHIEF, 0), session_creation_timeout_secs=0.1)
    words = r"^ps-0 \(localhost:1\) did not join the chief within 0.1 s: start it"
    with pytest.raises(WaitTimeoutError, match=words):
        train_and_evaluate(Estimator(line, tmp_path, config), TrainSpec(records, 8), EVAL)


def test_a_living_job_keeps_its_certificate(tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "cluster.pem").write_text("of the living")
    living = Estimator(line, tmp_path, RunConfig(cluster=None))
    with Attempt(living, TrainSpec(records, 8), None), pytest.raises(ModelDirError, match=r"is in use by process \d+"):
        run(ClusterTask(CLUSTER, TaskType.CHIEF, 0), tmp_path)
    assert (tmp_path / "tls" / "cluster.pem").read_text() == "of the living"


@pytest.mark.cluster
@pytest.mark.parametrize("num_of_chief", [3, 0])
def test_each_worker_that_reads_all_calls_its_own_input_fn(num_of_chief: int, tmp_path: Path, beside: Any) -> None:
    cluster = ClusterAddresses(free_address(), (free_address(),), (free_address(),), chief_evaluates=True)
    called: list[str] = []

    def part(name: str, num_batches: int = 3) -> TrainSpec:
        def input_fn() -> Iterator[Any]:
            for _ in range(num_batches):
                called.append(name)
                yield np.ones(4), np.ones(4)

        return TrainSpec(input_fn, each_worker_reads_all=True)

    others = [TaskType.PS, TaskType.WORKER]
    ends = [beside(run, ClusterTask(cluster, kind, 0), tmp_path, part(kind)) for kind in others]
    reports = run(ClusterTask(cluster, TaskType.MASTER, 0), tmp_path, part("master", num_of_chief))
    assert [end.result(HANG_SECS) for end in ends] == [{}, {}]
    assert called.count("worker") == 3
    last = num_of_chief + 3
    assert reports["chief-0"]["statistics"]["job"]["global_step"] == last
    assert [record.global_step for record in EvaluationLog(str(tmp_path)).read()] == [0, last]


CLUSTER = ClusterAddresses("a:1", ("a:2",), ("a:3",))
REFUSED = [
    (
        ClusterTask(CLUSTER, TaskType.CLIENT, 0),
        {},
        "this process is a client, which is not a role of a job; start each role of its cluster",
    ),
    (
        ClusterTask(ClusterAddresses("a:1"), TaskType.CHIEF, 0),
        {},
        "the cluster has no ps; add one, or leave the cluster out to train in one process",
    ),
    (
        ClusterTask(CLUSTER, TaskType.CHIEF, 0),
        {"num_workers": 1},
        "this process is one of a cluster, and 1 ps and 1 workers were requested; leave num_ps and num_workers out",
    ),
    (
        ClusterTask(CLUSTER, TaskType.CHIEF, 0),
        {"client": object.__new__(Client)},
        "this process is one of a cluster, and a client is given; leave one of the two out",
    ),
]


@pytest.mark.parametrize(("task", "options", "fault"), REFUSED)
def test_what_is_refused_before_anything_starts(
    task: ClusterTask, options: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(fault)}$"):
        run(task, tmp_path, **options)
    assert list(tmp_path.iterdir()) == []


def test_roles_need_a_directory_that_all_see() -> None:
    config = RunConfig(cluster=ClusterTask(CLUSTER, TaskType.PS, 0))
    with pytest.raises(
        UsageError, match=r"^this process belongs to a cluster, but no model_dir is given: give a directory that"
    ):
        Estimator(line, config=config)
    remote = Estimator(line, "memory://by-hand", config)
    with pytest.raises(UsageError, match=r"^model_dir memory://by-hand: the processes meet in a directory; choose"):
        train_and_evaluate(remote, TrainSpec(records, 8), EVAL)
