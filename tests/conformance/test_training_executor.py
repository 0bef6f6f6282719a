"""The parts of a job by name, as launchers call them: which process may run which, and what it does then."""

from __future__ import annotations

import re

import pytest
from distributed import Client

from psflow import EvalSpec, FinalExporter, RunConfig, TrainingExecutor, TrainSpec, train_and_evaluate
from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.errors import NoClusterError, UsageError
from psflow.ps_runtime.estimator import train_and_evaluate as training
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType
from tests.conformance.programs import estimator_in, line, rows

EVAL = EvalSpec(rows, None, start_delay_secs=0)
KINDS = [kind for kind in TaskType if kind is not TaskType.CLIENT]
REACHED = r"^model_dir memory://executor: the processes meet in a directory; "
"""What the role that is asked for says, once it is found to be that of this process."""


def executor_of(kind, eval_spec=EVAL, make=TrainingExecutor, **options):
    cluster = ClusterAddresses("c:1", ("w:1",), ("p:1",), chief_evaluates=kind is TaskType.MASTER)
    config = RunConfig(cluster=ClusterTask(cluster, kind, 0))
    return make(Estimator(line, "memory://executor", config), TrainSpec(rows), eval_spec, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_runs_its_own_role(kind):
    executor = executor_of(kind)
    for run in (getattr(executor, f"run_{kind}"), executor.run):
        with pytest.raises(UsageError, match=REACHED):
            run()


@pytest.mark.parametrize(("kind", "other"), [(kind, other) for kind in TaskType for other in KINDS if kind != other])
def test_a_process_runs_no_other_role(kind, other):
    words = f"run_{other}: this process is {kind} 0; call run, which runs that role, or correct its type"
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        getattr(executor_of(kind), f"run_{other}")()


def test_a_client_runs_no_role():
    with pytest.raises(ValueError, match=r"^this process is a client, which is not a role of a job; start each role"):
        executor_of(TaskType.CLIENT).run()


@pytest.mark.parametrize("kind", KINDS)
def test_run_calls_the_part_of_this_process(kind):
    called = []
    names = [f"run_{name}" for name in (*KINDS, "local")]
    noting = {name: lambda self, name=name: called.append(name) for name in names}
    executor_of(kind, make=type("Noting", (TrainingExecutor,), noting)).run()
    assert called == [f"run_{kind}"]


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_cluster_there_is_no_role(kind, tmp_path):
    executor = TrainingExecutor(estimator_in(tmp_path / "model"), TrainSpec(rows), EVAL)
    words = (
        rf"^run_{kind} runs one process of a cluster, but there is no cluster; set TF_CONFIG before the RunConfig is"
    )
    with pytest.raises(RuntimeError, match=words) as caught:
        getattr(executor, f"run_{kind}")()
    assert type(caught.value) is NoClusterError
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_no_process_of_a_cluster_runs_all_of_it(kind):
    executor = executor_of(kind)
    for run in (executor.run_local, lambda: executor.run_on(object.__new__(Client), num_ps=1, num_workers=0)):
        with pytest.raises(ValueError, match=rf"^this process is {kind} 0 of a cluster whose chief"):
            run()


@pytest.mark.parametrize("name", ["run", "run_local"])
def test_without_a_cluster_this_process_runs_all_of_it(name, tmp_path):
    events = []
    estimator = estimator_in(tmp_path / "model", save_checkpoints_steps=2)
    executor = TrainingExecutor(estimator, TrainSpec(rows), EVAL, on_event=events.append)
    reports = getattr(executor, name)()
    assert executor.estimator is estimator
    assert {role: report["exit"] for role, report in reports.items()} == dict.fromkeys(
        ("chief-0", "evaluator-0"), "finished"
    )
    assert {event.role for event in events} == set(reports)
    assert [record.global_step for record in EvaluationLog(estimator.model_dir).read()] == [0, 2, 3]


def test_it_is_what_train_and_evaluate_does(tmp_path):
    weights = []
    for call in (train_and_evaluate, lambda *given: TrainingExecutor(*given).run()):
        estimator = estimator_in(tmp_path / str(len(weights)))
        call(estimator, TrainSpec(rows), iter([EVAL]))
        assert [record.global_step for record in EvaluationLog(estimator.model_dir).read()] == [0, 3]
        weights.append(estimator.get_variable_value("w"))
    assert weights[0] == weights[1] != 0.5


@pytest.mark.parametrize(("num_ps", "num_workers"), [(2, 0), (1, 1)])
def test_one_process_is_one_ps_and_the_chief(num_ps, num_workers, tmp_path):
    words = rf"^{num_ps} ps and {num_workers} workers need a cluster: pass client="
    with pytest.raises(ValueError, match=words):
        train_and_evaluate(
            estimator_in(tmp_path / "model"), TrainSpec(rows), EVAL, num_ps=num_ps, num_workers=num_workers
        )


@pytest.mark.parametrize("name", ["run_local", "run_master", "run_evaluator"])
def test_who_evaluates_needs_an_eval_spec(name, tmp_path):
    kind = TaskType(name.removeprefix("run_")) if name != "run_local" else None
    alone = TrainingExecutor(estimator_in(tmp_path / "model"), TrainSpec(rows), None)
    executor = alone if kind is None else executor_of(kind, None)
    for run in (getattr(executor, name), executor.run):
        with pytest.raises(
            TypeError, match=rf"^{name}: eval_spec should be an EvalSpec, or a sequence of them, got None$"
        ):
            run()


@pytest.mark.parametrize("kind", [TaskType.CHIEF, TaskType.WORKER, TaskType.PS])
def test_the_others_do_not(kind):
    with pytest.raises(UsageError, match=REACHED):
        executor_of(kind, None).run()


def test_it_takes_an_estimator_and_specs():
    with pytest.raises(TypeError) as caught:
        TrainingExecutor(None, 3, [3], writer=3, on_event=3)
    assert [fault.partition(", ")[0] for fault in caught.value.faults] == [
        "TrainingExecutor: estimator should be an Estimator",
        "TrainingExecutor: train_spec should be a TrainSpec",
        "TrainingExecutor: eval_spec[0] should be an EvalSpec",
        "TrainingExecutor: writer should be a ModelWriter",
        "TrainingExecutor: on_event should be callable",
    ]


def test_a_dask_cluster_has_a_client_and_roles(tmp_path):
    executor = TrainingExecutor(estimator_in(tmp_path / "model"), TrainSpec(rows), EVAL)
    with pytest.raises(ValueError, match=r"^run_on: ") as caught:
        executor.run_on(None, num_ps=0, num_workers=-1)
    assert caught.value.faults == (
        "run_on: client should be a distributed.Client, got None",
        "run_on: num_ps should be 1 or more, got 0",
        "run_on: num_workers should be 0 or more, got -1",
    )


def test_a_job_has_the_roles_of_the_cluster(tmp_path, monkeypatch):
    jobs = []

    def plan(task, estimator, train_spec, eval_specs, make_attempt, writer, on_event, place):
        with make_attempt() as attempt:
            job = attempt.job(writer)
        jobs.append((task, estimator, job.num_ps, job.num_workers, job.transport, on_event, bool(eval_specs)))
        return {}

    monkeypatch.setattr(training, "run_manual_role", plan)
    task = ClusterTask(ClusterAddresses("c:1", ("w:1", "w:2", "w:3"), ("p:1", "p:2")), TaskType.CHIEF, 0)
    estimator = Estimator(line, str(tmp_path), RunConfig(cluster=task))
    for eval_spec in (EVAL, None):
        assert TrainingExecutor(estimator, TrainSpec(rows), eval_spec, transport="tcp", on_event=print).run() == {}
    assert jobs == [(task, estimator, 2, 3, "tcp", print, evaluator) for evaluator in (True, False)]


def test_a_model_that_cannot_be_exported_is_refused_by_every_process():
    def inner(features, labels, mode):
        return line(features, labels, mode)

    task = ClusterTask(ClusterAddresses("c:1", ps=("p:1",)), TaskType.PS, 0)
    estimator = Estimator(inner, "memory://executor", RunConfig(cluster=task))
    with pytest.raises(UsageError, match="inner"):
        TrainingExecutor(estimator, TrainSpec(rows), EvalSpec(rows, exporters=FinalExporter("final")))
