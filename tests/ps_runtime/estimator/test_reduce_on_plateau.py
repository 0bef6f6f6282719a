"""A training whose learning rate falls by the evaluations of its evaluator, across attempts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import psflow
from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord, RecentEvaluations
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from tests.ps_runtime.roles.conftest import RoleThreads, roles  # noqa: F401  (a fixture)

LIMIT_SECS = 60.0


def model_fn(features: Any, labels: Any, mode: str, params: Any) -> psflow.EstimatorSpec:
    """Lower ``w`` by the learning rate in each step; no evaluation is better than the first."""
    w = psflow.get_variable("w", initializer=0.0)
    op = psflow.GradientDescent(params["rate"]).apply_gradients({"w": np.float32(1)})
    return psflow.EstimatorSpec(mode, {"w": w}, np.float32(2), op, {"constant": psflow.metrics.mean(0 * w)})


def examples() -> psflow.Dataset:
    return psflow.Dataset({"x": np.zeros(4, np.float32)}, np.zeros(4, np.float32)).batch(2)


def estimator_of(folder: Path, **options: Any) -> psflow.Estimator:
    rate = psflow.ReduceOnPlateau(1.0, **{"factor": 0.5, "patience": 0, "min_learning_rate": 0.25, **options})
    config = psflow.RunConfig(tf_random_seed=1, save_checkpoints_steps=200, log_step_count_steps=None)
    return psflow.Estimator(model_fn, str(folder / "model"), config, {"rate": rate})


class EndsAtRate(psflow.SessionRunHook):
    """Ends training at a learning rate; fails if there is none in time."""

    def __init__(self, rate: float) -> None:
        self._rate, self._ends_at = rate, time.monotonic() + LIMIT_SECS

    def after_run(self, run_context: Any, run_values: Any) -> None:
        [rate] = run_context.session.result.learning_rates
        if rate == self._rate:
            run_context.request_stop()
        assert time.monotonic() < self._ends_at, f"the learning rate is still {rate} after {LIMIT_SECS} s"


def test_the_rate_falls_by_evaluations_and_a_resumed_job_goes_on_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "psflow")
    eval_spec = psflow.EvalSpec(examples, start_delay_secs=0, throttle_secs=0)
    estimator = estimator_of(tmp_path, metric="constant")
    endless = psflow.TrainSpec(lambda: examples().repeat(), hooks=[EndsAtRate(0.25)])
    psflow.train_and_evaluate(estimator, endless, eval_spec)
    assert len(EvaluationLog(estimator.model_dir).read()) >= 3
    assert "learning rate is 0.25 from global_step" in caplog.text
    w, step = estimator.get_variable_value("w"), estimator.get_variable_value("global_step")

    again = psflow.TrainSpec(lambda: examples().repeat(), max_steps=int(step) + 20)
    psflow.train_and_evaluate(estimator_of(tmp_path, metric="constant"), again, eval_spec)
    assert estimator.get_variable_value("w") == w - 20 * 0.25


def test_every_replica_pushes_the_rate_that_evaluations_left(roles: RoleThreads, tmp_path: Path) -> None:  # noqa: F811
    estimator = estimator_of(tmp_path)
    spec = psflow.TrainSpec(lambda: examples().repeat(), max_steps=60)
    with Attempt(estimator, spec, [psflow.EvalSpec(examples)], num_workers=2) as attempt:
        log = EvaluationLog(estimator.model_dir)
        for step in (0, 1):
            log.append(EvaluationRecord("", step, float(step), {"loss": 1.0}, float(step)))
        roles.train(attempt.job())
    num_whole = 2 * (-float(estimator.get_variable_value("w")) - 60 * 0.5)
    assert num_whole in (1, 2, 3), "only the first ticket of each replica has the rate of step 0"


@pytest.mark.parametrize(
    ("options", "eval_name", "fault"),
    [
        (
            {},
            None,
            r"reads the evaluations of an EvalSpec without a name, but this training makes none; call train_and",
        ),
        ({}, "test", r"this training makes those of 'test'; set eval_name"),
        ({"eval_name": "test", "metric": "los"}, "test", r"reads the metric 'los', .* did you mean 'loss'\?"),
    ],
)
def test_a_training_without_the_evaluation_is_refused_before_it_starts(
    options: dict[str, Any], eval_name: str | None, fault: str, tmp_path: Path
) -> None:
    estimator = estimator_of(tmp_path, **options)
    eval_specs = [] if eval_name is None else [psflow.EvalSpec(examples, name=eval_name)]
    with pytest.raises(UsageError, match=f"learning_rate: ReduceOnPlateau .*{fault}"):
        Attempt(estimator, psflow.TrainSpec(examples), eval_specs)
    assert not (tmp_path / "model" / "job.json").exists()


def test_each_evaluation_counts_once_and_is_noticed_within_a_second(tmp_path: Path) -> None:
    now = 0.0
    log, recent = EvaluationLog(str(tmp_path)), RecentEvaluations(str(tmp_path), lambda: now)
    assert recent("") == {}
    for step, saved_at, loss in ((100, 1.0, 3.0), (200, 2.0, 2.0), (200, 3.0, 1.0)):  # 200 was trained again
        log.append(EvaluationRecord("", step, saved_at, {"loss": loss}, saved_at))
    assert recent("") == {}
    now = 1.0
    assert recent("") == {100: {"loss": 3.0}, 200: {"loss": 1.0}}
    assert recent("other") == {}
    assert RecentEvaluations(str(tmp_path))("") == recent(""), "also in a process that starts later"
