"""Evaluating and predicting in one process: from which checkpoint, and without leaving a trace."""

from __future__ import annotations

import uuid
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.errors import CheckpointError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.specs.run_config import RunConfig
from tests.ps_runtime.estimator.regression import (
    NUM_BATCHES,
    NUM_RECORDS,
    BatchRows,
    batches,
    records,
    regression,
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


def test_evaluates_part_of_an_input_under_a_name(make, caplog):
    estimator = make()
    estimator.train(shuffled, max_steps=3)
    caplog.set_level("INFO", "psflow")
    found = estimator.evaluate(records, steps=2, name="part")
    assert found.keys() == {"mae", "loss", "global_step"}
    assert found["global_step"] == 3
    assert found["mae"] != estimator.evaluate(records)["mae"]
    dicts = [line.split(":")[0] for line in caplog.messages if line.startswith("Saving dict")]
    assert dicts == ["Saving dict for global step 3 of part", "Saving dict for global step 3"]


def test_reads_back_what_it_wrote_to_a_url():
    estimator = Estimator(regression, f"memory://{uuid.uuid4().hex}/model", RunConfig(save_checkpoints_steps=2))
    estimator.train(shuffled, max_steps=3)
    latest = estimator.latest_checkpoint()
    assert latest.endswith("/model/checkpoints/step_00000003")
    assert estimator.get_variable_names() == ["b", "global_step", "w"]
    assert estimator.get_variable_value("w").shape == (2,)
    assert estimator.evaluate(records)["global_step"] == 3
    assert estimator.evaluate(records, checkpoint_path=latest[:-1] + "2")["global_step"] == 2
    other = Estimator(regression, f"memory://{uuid.uuid4().hex}")
    assert len(list(other.predict(records, checkpoint_path=latest))) == NUM_RECORDS


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
    seen = BatchRows()
    estimator.train(shuffled, [seen], max_steps=4)
    assert seen.steps == [4]
