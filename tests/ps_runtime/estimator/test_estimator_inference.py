"""Evaluating and predicting in one process: from which checkpoint, and without leaving a trace."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ps_runtime.checkpoint.records import EvaluationLog
from ps_runtime.errors import CheckpointError, UsageError
from ps_runtime.estimator.attempt import Attempt
from ps_runtime.estimator.local import run_local
from ps_runtime.model.training import EvalSpec, TrainSpec
from tests.ps_runtime.estimator.regression import (
    NUM_BATCHES,
    NUM_RECORDS,
    Rows,
    batches,
    records,
    shuffled,
)


def test_evaluating_agrees_with_the_evaluator(make):
    estimator = make()
    with Attempt(estimator, TrainSpec(shuffled, 12), EvalSpec(records, None, throttle_secs=0)) as attempt:
        run_local(attempt.job(), lambda event: None, attempt.check)
    recorded = EvaluationLog(estimator.model_dir).read()
    assert recorded[-1].global_step == 12
    for evaluation in recorded:
        path = estimator.latest_checkpoint().replace("step_00000012", f"step_{evaluation.global_step:08d}")
        assert estimator.evaluate(records, checkpoint_path=path) == evaluation.metrics


def test_evaluates_part_of_an_input_under_a_name(make):
    estimator = make()
    estimator.train(shuffled, max_steps=3)
    found = estimator.evaluate(records, steps=2, name="part")
    assert found.keys() == {"part/mae", "part/loss", "part/global_step"}
    assert found["part/global_step"] == 3
    assert found["part/mae"] != estimator.evaluate(records)["mae"]


@pytest.mark.parametrize("input_fn", [records, batches])
def test_predicts_each_row_once_in_order(make, input_fn):
    estimator = make()
    estimator.train(shuffled, max_steps=3)
    predictions = list(estimator.predict(input_fn))
    assert [p["row"] for p in predictions] == list(range(NUM_RECORDS))
    by_batch = list(estimator.predict(input_fn, predict_keys=["y"], yield_single_examples=False))
    assert len(by_batch) == NUM_BATCHES
    assert np.concatenate([p["y"] for p in by_batch]).tolist() == [p["y"] for p in predictions]


def test_predicts_known_keys_only(make):
    estimator = make()
    estimator.train(shuffled, max_steps=1)
    with pytest.raises(UsageError, match="there is no prediction 'rows'; did you mean 'row'"):
        next(estimator.predict(records, predict_keys=["rows"]))


@pytest.mark.parametrize(
    "use", [lambda e: e.evaluate(records), lambda e: next(e.predict(records)), lambda e: e.get_variable_names()]
)
def test_nothing_is_made_up_without_a_checkpoint(make, use):
    estimator = make()
    with pytest.raises(CheckpointError, match="there is no checkpoint yet; train first"):
        use(estimator)
    assert not Path(estimator.model_dir).exists()


def files_in(directory):
    return {
        path.relative_to(directory): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in Path(directory).rglob("*")
        if path.name != "pins"  # where readers say what must not be collected meanwhile
    }


def test_evaluating_and_predicting_leave_the_model_dir_as_it_is(make):
    estimator = make()
    estimator.train(shuffled, max_steps=3)
    before = files_in(estimator.model_dir)
    estimator.evaluate(records)
    list(estimator.predict(records))
    assert files_in(estimator.model_dir) == before
    seen = Rows()
    estimator.train(shuffled, [seen], max_steps=4)
    assert seen.steps == [4]
