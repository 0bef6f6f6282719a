"""Training in one process: how far, on what, how it ends, and what is left on disk."""

from __future__ import annotations

import gc
import logging
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

import psflow
from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.errors import (
    CheckpointError,
    InputError,
    ModelFnError,
    NanGradientError,
    NanLossError,
    UsageError,
)
from psflow.ps_runtime.initializers import ones
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.hooks.base import SessionRunHook
from psflow.ps_runtime.model.hooks.basic import NanTensorHook, StopAtStepHook
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.optimizers import GradientDescent
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Hogwild, Sync
from tests.ps_runtime.estimator.ratings import SGD
from tests.ps_runtime.estimator.regression import (
    NUM_BATCHES,
    NUM_RECORDS,
    BatchRows,
    FailAt,
    batches,
    records,
    regression,
    shuffled,
    spoilt,
    steps_of,
)

# How far


@pytest.mark.parametrize("max_steps", [1, 5, 13])
def test_trains_to_exactly_max_steps(make, max_steps):
    seen = BatchRows()
    estimator = make()
    assert estimator.train(shuffled, [seen], max_steps=max_steps) is estimator
    assert seen.steps == list(range(1, max_steps + 1))
    assert steps_of(estimator.model_dir) == sorted({0, *range(5, max_steps, 5), max_steps})
    assert estimator.latest_checkpoint().endswith(f"step_{max_steps:08d}")


def test_steps_add_to_what_is_there_and_max_steps_do_not(make):
    estimator = make()
    estimator.train(shuffled, steps=4).train(shuffled, steps=3)
    assert steps_of(estimator.model_dir)[-1] == 7
    seen = BatchRows()
    estimator.train(shuffled, [seen], max_steps=7)
    assert seen.steps == []
    estimator.train(shuffled, [seen], max_steps=9)
    assert seen.steps == [8, 9]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"steps": 1, "max_steps": 1}, "give steps or max_steps, not both"),
        ({"steps": 0}, "steps should be greater than 0, got 0"),
        ({"max_steps": -1}, "max_steps should be greater than 0, got -1"),
    ],
)
def test_refuses_contradictory_ends(make, arguments, said):
    estimator = make()
    with pytest.raises(UsageError, match=said):
        estimator.train(shuffled, **arguments)
    assert not Path(estimator.model_dir).exists()


@pytest.mark.parametrize("input_fn", [records, batches])
@pytest.mark.parametrize(
    ("max_steps", "said"),
    [
        (None, "the input ended after 10 steps (40 examples in 1 epoch)"),
        (1000, "the input ended after 10 of 1,000 steps (40 examples in 1 epoch); repeat() reads it again"),
        (NUM_BATCHES, "all steps are done"),
    ],
)
def test_an_input_that_ends_is_read_once_and_ends_training(make, input_fn, max_steps, said, caplog):
    seen = BatchRows()
    estimator = make()
    estimator.train(input_fn, [seen], max_steps=max_steps)
    assert sorted(seen.rows) == list(range(NUM_RECORDS))
    assert steps_of(estimator.model_dir)[-1] == NUM_BATCHES
    finished = read_finished(estimator.model_dir)
    assert (finished.final_step, finished.reason) == (NUM_BATCHES, said)
    warned = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert warned == ([said] if max_steps == 1000 else [])


@pytest.mark.parametrize("max_steps", [5, 3])
def test_who_has_nothing_left_to_train_is_told(make, max_steps, caplog):
    estimator = make().train(shuffled, max_steps=5)
    said = f"nothing was trained: the model was at step 5 already, and max_steps is {max_steps}"
    estimator.train(shuffled, max_steps=max_steps)
    assert said in caplog.text
    caplog.clear()
    psflow.train_and_evaluate(estimator, psflow.TrainSpec(shuffled, max_steps=max_steps), psflow.EvalSpec(records))
    assert said in caplog.text
    assert read_finished(estimator.model_dir).reason == said


@pytest.mark.parametrize("input_fn", [records, batches])
def test_an_input_that_was_read_to_its_end_is_read_again_by_the_next_call(make, input_fn):
    estimator = make()
    estimator.train(input_fn)
    seen = BatchRows()
    estimator.train(input_fn, [seen])
    assert sorted(seen.rows) == list(range(NUM_RECORDS))
    assert steps_of(estimator.model_dir)[-1] == 2 * NUM_BATCHES


def with_holes():
    data = records()
    y = data.labels.copy()
    y[[0, 3, 17, 39]] = np.nan
    return replace(data, labels=y, shuffle_seed=5)


def with_holes_in_batches():
    data = with_holes()
    for start in range(0, NUM_RECORDS, 4):
        yield data.read(0, start, start + 4)


@pytest.mark.parametrize("input_fn", [with_holes, with_holes_in_batches])
def test_each_row_that_is_left_is_used_once_over_a_resume(make, input_fn):
    class RowsOfSteps(BatchRows):
        def after_run(self, run_context, run_values):
            rows, step = run_values.results
            trained[step] = rows.tolist()

    trained = {}
    estimator = make(save_checkpoints_steps=1)
    with pytest.raises(InputError, match="labels has"):
        estimator.train(input_fn, [RowsOfSteps()])
    assert input_fn is with_holes_in_batches or trained == {}  # a generator is read while it is trained on
    with pytest.raises(ZeroDivisionError):
        estimator.train(input_fn, [RowsOfSteps(), FailAt(4)], non_finite="drop")
    estimator.train(input_fn, [RowsOfSteps()], non_finite="drop")
    assert sorted(row for rows in trained.values() for row in rows) == sorted({*range(NUM_RECORDS)} - {0, 3, 17, 39})
    assert np.isfinite(estimator.evaluate(input_fn, non_finite="drop")["loss"])


# How it ends


def test_a_hook_ends_training_and_a_later_call_trains_on(make):
    estimator = make()
    estimator.train(shuffled, [StopAtStepHook(last_step=7)], max_steps=20)
    assert steps_of(estimator.model_dir) == [0, 5, 7]
    assert "has reached 7" in read_finished(estimator.model_dir).reason
    estimator.train(shuffled, max_steps=20)
    assert steps_of(estimator.model_dir)[-1] == 20


@pytest.mark.parametrize("reason", ["", "why " * 3000, "\U0001f600" * 3000])
def test_a_hook_may_end_training_for_any_reason(make, reason):
    class Stop(SessionRunHook):
        def after_run(self, run_context, run_values):
            run_context.coordinator.request_stop(reason)

    assert steps_of(make().train(shuffled, [Stop()], max_steps=9).model_dir)[-1] == 1


def test_a_hook_may_end_training_before_its_first_step(make):
    class Unwilling(SessionRunHook):
        def after_create_session(self, session, coord):
            coord.request_stop("not today")

    seen = BatchRows()
    estimator = make()
    estimator.train(shuffled, [Unwilling(), seen], max_steps=20)
    assert seen.steps == []
    assert steps_of(estimator.model_dir) == [0]


def test_a_nan_loss_ends_training_before_it_spoils_anything(make):
    def diverging(features, labels, mode):
        spec = regression(features, labels, mode)
        loss = spec.loss if 17 not in features["row"] else np.float32("nan")
        return EstimatorSpec(mode, loss=loss, train_op=spec.train_op)

    estimator = make(model_fn=diverging, save_checkpoints_steps=1)
    with pytest.raises(NanLossError, match="the loss is nan at global_step 4"):
        estimator.train(records)
    assert steps_of(estimator.model_dir)[-1] <= 4
    assert all(np.isfinite(estimator.get_variable_value(name)).all() for name in estimator.get_variable_names())


@pytest.mark.parametrize(
    ("input_fn", "where"),
    [
        (lambda: replace(with_holes(), batch_size=40), r"labels, row (0|3|17|39) of input_fn <lambda> \(the first"),
        (with_holes_in_batches, r"labels, row \d of batch \d"),
    ],
)
def test_a_loss_that_is_nan_because_of_a_kept_cell_is_told_with_the_cell(make, input_fn, where):
    with pytest.raises(NanLossError, match=f"has a missing, NaN or infinite value in {where}"):
        make().train(input_fn, non_finite="keep")


@pytest.mark.parametrize(
    ("consistency", "pipeline_depth"),
    [(Async(), 0), (Async(), 1), (BoundedStaleness(2), 1), (Sync(), 0), (Hogwild(), 0), (Hogwild(), 1)],
)
def test_a_gradient_that_is_not_finite_ends_training_as_a_nan_loss_does(make, consistency, pipeline_depth):
    settings = {"save_checkpoints_steps": 1, "consistency": consistency, "pipeline_depth": pipeline_depth}
    estimator = make(model_fn=spoilt("w", np.nan), **settings)
    words = r"^chief-0 computed a gradient of variable 'w' that is nan at global_step 4, although the loss is finite"
    with pytest.raises(NanGradientError, match=words):
        estimator.train(records)
    assert 2 <= steps_of(estimator.model_dir)[-1] <= 4
    assert all(np.isfinite(estimator.get_variable_value(name)).all() for name in estimator.get_variable_names())


@pytest.mark.parametrize("pipeline_depth", [0, 1])
def test_training_may_end_at_a_gradient_that_is_not_finite_with_a_checkpoint_of_what_was_before(make, pipeline_depth):
    estimator = make(model_fn=spoilt("b", np.inf), pipeline_depth=pipeline_depth)
    estimator.train(records, [NanTensorHook(fail_on_nan_loss=False)])
    assert steps_of(estimator.model_dir)[-1] == 4
    finished = read_finished(estimator.model_dir)
    assert finished.reason.startswith("chief-0 computed a gradient of variable 'b' that is ")
    assert np.isfinite(estimator.get_variable_value("b"))


def test_a_guard_that_does_nothing_lets_no_step_pass_quietly(make):
    class Silent(NanTensorHook):
        def after_run(self, run_context, run_values):
            pass

    with pytest.raises(NanGradientError, match="at global_step 4"):
        make(model_fn=spoilt("w", np.nan)).train(records, [Silent()])


def test_a_weight_that_overflows_by_finite_gradients_is_in_no_checkpoint(make):
    def exploding(features, labels, mode):
        get_variable("w", (2,))
        rule = GradientDescent(learning_rate=1e38)
        return EstimatorSpec(mode, loss=np.float32(1), train_op=rule.apply_gradients({"w": np.float32([1, 2])}))

    estimator = make(model_fn=exploding, save_checkpoints_steps=1)
    words = (
        r"ps-0 could not write its part of checkpoint 2: checkpoint .*/step_00000002: row 1 of variable 'w' is -inf, "
        r"so it is not written and the last one stays the latest; lower the learning rate"
    )
    with pytest.raises(CheckpointError, match=words):
        estimator.train(shuffled, max_steps=1000)
    assert steps_of(estimator.model_dir) == [0, 1]
    assert np.isfinite(estimator.get_variable_value("w")).all()


def test_an_initial_value_that_is_not_finite_is_refused_before_anything_starts(make):
    def model_fn(features, labels, mode):
        get_variable(
            "mask", (2,), initializer=lambda shape, dtype, rng: np.full(shape, -np.inf, dtype), trainable=False
        )
        return regression(features, labels, mode)

    with pytest.raises(ModelFnError, match="the initializer of variable 'mask' returned -inf, expected finite numbers"):
        make(model_fn=model_fn).train(records)


# Input


def test_a_generator_without_batches_is_refused_before_anything_starts(make):
    estimator = make()
    with pytest.raises(InputError, match="the input_fn for train returned no batch"):
        estimator.train(lambda: iter(()), max_steps=5)
    assert not Path(estimator.model_dir).exists()


def test_a_generator_that_fails_midway_fails_training_with_its_words(make):
    def failing():
        for number, batch in enumerate(batches()):
            if number == 6:
                raise ZeroDivisionError("the seventh batch is missing")
            yield batch

    estimator = make()
    said = r":test_\S+failing raised ZeroDivisionError in train mode at tests/\S+/test_estimator.py:\d+: the seventh"
    with pytest.raises(InputError, match=said):
        estimator.train(failing)
    assert set(steps_of(estimator.model_dir)) <= {0, 5}


def test_a_model_fn_that_fails_does_so_before_anything_starts(make):
    estimator = make(model_fn=lambda features, labels: None)
    with pytest.raises(ModelFnError, match="must return an EstimatorSpec, got NoneType"):
        estimator.train(records)
    assert not Path(estimator.model_dir).exists()


def test_a_model_fn_cannot_write_to_variables_in_any_mode(make):
    refused = []

    def writing(features, labels, mode):
        spec = regression(features, labels, mode)
        w = get_variable("w", (2,))
        with pytest.raises(ValueError, match="read-only"):
            w += 1
        refused.append(mode)
        return spec

    estimator = make(model_fn=writing)
    estimator.train(records, max_steps=2)
    estimator.evaluate(records, steps=1)
    next(estimator.predict(records))
    assert refused == ["train"] * 3 + ["eval", "infer"]  # the first call, and a call for each step
    assert np.isfinite(estimator.get_variable_value("w")).all()


def test_a_gradient_that_is_a_variable_is_that_of_its_step_in_a_pipeline_too(make):
    def decay(features, labels, mode):
        w = get_variable("w", (2,), initializer=ones)
        return EstimatorSpec(mode, loss=0.0, train_op=SGD.apply_gradients({"w": w}))

    estimator = make(model_fn=decay, pipeline_depth=1)
    estimator.train(shuffled, max_steps=3)
    # the second batch is computed on the first values as well, the third on those after the first update
    np.testing.assert_allclose(estimator.get_variable_value("w"), 1 - 0.1 - 0.1 - 0.09, rtol=1e-6)


# Checkpoints


def test_without_checkpoints_it_ends_cleanly(make):
    seen = BatchRows()
    estimator = make(save_checkpoints_steps=None, save_checkpoints_secs=None)
    estimator.train(shuffled, [seen], max_steps=12)
    assert seen.steps[-1] == 12
    assert estimator.latest_checkpoint() is None


def test_saves_after_so_many_seconds(make):
    estimator = make(save_checkpoints_secs=1e-6)
    estimator.train(shuffled, max_steps=6)
    assert len(steps_of(estimator.model_dir)) > 2


def test_keeps_so_many_checkpoints(make):
    estimator = make(save_checkpoints_steps=2, keep_checkpoint_max=2)
    estimator.train(shuffled, max_steps=11)
    assert steps_of(estimator.model_dir) == [10, 11]


def held():
    gc.collect()  # else files of earlier tests may be closed between two looks
    return (
        [thread.name for thread in threading.enumerate()],
        sorted(os.listdir("/proc/self/fd")),
        len(psutil.Process().net_connections("all")),
    )


@pytest.mark.parametrize("input_fn", [shuffled, batches])
def test_training_leaves_no_thread_and_no_file_open(make, input_fn):
    estimator = make()
    before = held()
    estimator.train(input_fn, max_steps=6)
    assert held() == before
    with pytest.raises(ZeroDivisionError):
        estimator.train(input_fn, [FailAt(8)], max_steps=20)
    assert held() == before
