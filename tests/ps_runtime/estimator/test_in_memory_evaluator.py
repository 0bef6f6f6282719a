"""Evaluation within training, of the variables as they are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import psflow
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.evaluation_hooks import InMemoryEvaluatorHook
from tests.ps_runtime.estimator.regression import records, shuffled


def test_evaluates_as_the_estimator_does_with_the_checkpoint_of_that_step(make):
    estimator = make(save_checkpoints_steps=3)
    hook = InMemoryEvaluatorHook(estimator, records, every_n_iter=3)
    estimator.train(shuffled, [hook], max_steps=7)
    assert list(hook.results) == [0, 3, 6, 7]
    for step in (0, 3, 6, 7):
        path = estimator.latest_checkpoint()[:-1] + str(step)
        assert estimator.evaluate(records, checkpoint_path=path) == {**hook.results[step], "global_step": step}


@pytest.mark.parametrize(("name", "prefix"), [(None, "eval"), ("test", "eval_test")])
def test_reports_as_an_evaluator(make, monkeypatch, name, prefix):
    estimator, events = make(), []
    monkeypatch.setattr(Attempt, "log_event", staticmethod(events.append))
    estimator.train(shuffled, [InMemoryEvaluatorHook(estimator, records, 2, name=name)], max_steps=2)
    metrics = [event for event in events if isinstance(event, psflow.Metrics)]
    found = [(event.step, set(event.values)) for event in metrics if f"{prefix}/loss" in event.values]
    assert found == [(0, {f"{prefix}/loss", f"{prefix}/mae"}), (2, {f"{prefix}/loss", f"{prefix}/mae"})]


def test_runs_hooks_around_its_batches(make):
    class Counting(psflow.SessionRunHook):
        runs = 0

        def after_run(self, run_context, run_values):
            self.runs += 1

    estimator = make()
    counting = Counting()
    estimator.train(shuffled, [InMemoryEvaluatorHook(estimator, records, 4, [counting])], max_steps=2)
    assert counting.runs == 4 * 2


def test_changes_no_bit_of_training(make):
    with_hook, without = make("with"), make("without")
    with_hook.train(shuffled, [InMemoryEvaluatorHook(with_hook, records, every_n_iter=1)], max_steps=4)
    without.train(shuffled, max_steps=4)
    assert with_hook.get_variable_value("w").tobytes() == without.get_variable_value("w").tobytes()


@pytest.mark.parametrize(
    ("config", "tables", "can_pull", "said"),
    [
        (SimpleNamespace(num_ps_replicas=1), (), True, "evaluates in one process; on a cluster use the evaluator"),
        (SimpleNamespace(num_ps_replicas=0), (), False, "needs pipeline_depth 0, got 1"),
        (SimpleNamespace(num_ps_replicas=0), (SimpleNamespace(name="items"),), True, "without tables, this one has it"),
    ],
)
def test_is_refused_where_it_cannot_evaluate(make, config, tables, can_pull, said):
    session = SimpleNamespace(config=config, model=SimpleNamespace(tables=tables), can_pull=can_pull)
    with pytest.raises(UsageError, match=said):
        InMemoryEvaluatorHook(make(), records).after_create_session(session, None)


@pytest.mark.parametrize("every", [0, -1, None])
def test_refuses_a_period_without_steps(make, every):
    with pytest.raises(UsageError, match="every_n_iter"):
        InMemoryEvaluatorHook(make(), records, every_n_iter=every)
