"""Estimators and sessions within a worker_fn: they belong to the cluster of the coordinator, and end with its task."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from psflow import (
    Estimator,
    EvalSpec,
    MonitoredTrainingSession,
    RunConfig,
    TrainSpec,
    train_and_evaluate,
)
from psflow.ps_runtime.errors import StoppedError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.specs.worker_context import ChiefSessionCreator, WorkerSessionCreator, within
from tests.conformance.coordinated import context_of
from tests.conformance.programs import estimator_in, line, rows
from tests.parity.coordinator import FULL, NO_CHIEF


@pytest.fixture(autouse=True)
def _model_dir(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"model_dir": "/models/a"}')


def test_a_session_of_a_worker_fn_trains_without_a_cluster(tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CONFIG")
    estimator, steps = estimator_in(tmp_path / "model"), []

    def train(context):
        creator = context.session_creator(checkpoint_dir=estimator.model_dir)
        with MonitoredTrainingSession(estimator, rows, session_creator=creator) as session:
            while not session.should_stop():
                steps.append(session.run("global_step"))

    context_of(look=train)
    assert steps == [1, 2, 3]


@pytest.mark.parametrize("model_dir", ["runs/x", "./runs/x/"])
def test_a_session_finds_its_directory_by_any_of_its_names(model_dir, tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CONFIG")
    monkeypatch.chdir(tmp_path)
    creator = ChiefSessionCreator("", {}, "runs/x")
    MonitoredTrainingSession(estimator_in(model_dir), rows, session_creator=creator)


@pytest.mark.parametrize(
    ("creator", "words"),
    [
        (ChiefSessionCreator("", {}, "/other"), "session_creator has checkpoint_dir '/other', but the Estimator has"),
        (WorkerSessionCreator("", {}, 5), "session_creator is that of a worker, which trains with a chief, but the"),
        (3, "session_creator should be the result of session_creator() of a worker context, or None, got int 3"),
    ],
)
def test_a_session_that_would_not_begin_so_is_refused(creator, words, tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CONFIG")
    with pytest.raises(UsageError, match=f"^MonitoredTrainingSession: {re.escape(words)}"):
        MonitoredTrainingSession(estimator_in(tmp_path), rows, session_creator=creator)


@pytest.mark.parametrize(
    ("cluster", "kind", "index", "role"),
    [
        (FULL, "worker", 1, "worker-1"),
        (NO_CHIEF, "worker", 0, "chief-0"),
        (NO_CHIEF, "worker", 2, "worker-1"),
        (FULL, "evaluator", 0, "evaluator-0"),
    ],
)
def test_a_run_config_has_the_cluster_of_the_coordinator(cluster, kind, index, role):
    _, config = context_of(cluster_spec=cluster, task_type=kind, task_id=index, look=lambda context: RunConfig())
    assert str(config.cluster.role) == role
    assert config.model_dir == "/models/a"
    assert "evaluator" not in config.cluster_spec.jobs
    assert bool(config.cluster_spec) == (kind != "evaluator")
    assert RunConfig().cluster is None


def test_within_a_cluster_nobody_trains_alone(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"model_dir": "memory://coordinator"}')
    options = {"cluster_spec": FULL, "task_type": "worker", "task_id": 1}
    with pytest.raises(UsageError, match=r"^model_dir memory://coordinator: the processes meet in a directory"):
        context_of(look=lambda _: train_and_evaluate(Estimator(line), TrainSpec(rows), EvalSpec(rows)), **options)
    alone = r"^this process is worker 1 of a cluster whose chief is at c:1, but this call trains"
    with pytest.raises(UsageError, match=alone):
        context_of(look=lambda _: Estimator(line).train(rows), **options)


def test_a_task_that_is_to_end_ends_its_training(tmp_path, monkeypatch):
    """The chief looks while its job runs, others until they have found the chief."""
    monkeypatch.setenv("TF_CONFIG", json.dumps({"model_dir": str(tmp_path)}))
    cluster = {"chief": ["c:1"], "ps": ["p:1"]}
    context, attempt = context_of(look=lambda _: Attempt(Estimator(line), TrainSpec(rows), None))
    assert attempt.check() is None
    evaluator, _ = context_of(cluster_spec=cluster, task_type="evaluator", task_id=0)

    def check():
        raise StoppedError("evaluator-0", "its Dask task was cancelled")

    with within(replace(context, check=check)), pytest.raises(StoppedError, match="cancelled"):
        attempt.check()
    with within(replace(evaluator, check=check)), pytest.raises(StoppedError, match="cancelled"):
        train_and_evaluate(Estimator(line), TrainSpec(rows), EvalSpec(rows))
