"""Estimator.evaluate and get_variable_*: what they return, of which checkpoint, and what they refuse."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import Estimator, ModeKeys, SessionRunHook
from psflow.ps_runtime.errors import ArgumentTypeError, InputError, NoCheckpointError, UsageError
from tests.conformance.programs import X, Y, batches, estimator_in, no_batches, rows


@pytest.fixture(scope="module")
def estimator(tmp_path_factory) -> Estimator:
    """One that has trained three steps, with checkpoints of steps 0, 2 and 3."""
    made = estimator_in(tmp_path_factory.mktemp("trained") / "model", save_checkpoints_steps=2)
    return made.train(rows)


def expected(w: float, num_rows: int, global_step: int) -> dict[str, float]:
    y = np.float32(w) * X[:num_rows]
    losses = [np.mean((y[i : i + 4] - Y[i : min(i + 4, num_rows)]) ** 2) for i in range(0, num_rows, 4)]
    return {"loss": np.mean(losses), "mean_y": np.mean(y), "global_step": global_step}


INPUTS = {
    "data set": rows,
    "generator": batches,
    "list of batches": lambda: list(batches()),
    "generator function": lambda: batches,
}


@pytest.mark.parametrize("input_fn", INPUTS.values(), ids=INPUTS.keys())
@pytest.mark.parametrize(("steps", "num_rows"), [(None, 12), (1, 4), (2, 8), (3, 12), (100, 12), (2.0, 8)])
def test_metrics_loss_and_step_over_so_many_batches(estimator, input_fn, steps, num_rows):
    result = estimator.evaluate(input_fn, steps)
    assert result == pytest.approx(expected(estimator.get_variable_value("w"), num_rows, 3), rel=1e-6)


def test_one_batch_is_a_tuple_of_arrays(estimator):
    result = estimator.evaluate(lambda: ({"x": X}, Y))
    assert result["mean_y"] == pytest.approx(float(estimator.get_variable_value("w")) * X.mean(), rel=1e-6)


@pytest.mark.parametrize("name", [None, "", "train set"])
def test_a_name_changes_no_metric(estimator, name):
    assert estimator.evaluate(rows, name=name) == estimator.evaluate(rows)


def files_below(directory: str) -> set[str]:
    return {str(path) for path in Path(directory).rglob("*")}


def test_nothing_is_written(estimator):
    before = files_below(estimator.model_dir)
    estimator.evaluate(rows)
    list(estimator.predict(rows))
    assert files_below(estimator.model_dir) == before


@pytest.mark.parametrize(("step", "w"), [(0, 0.5), (2, None), (3, None)])
def test_the_checkpoint_that_a_path_names(estimator, step, w):
    path = os.path.join(os.path.dirname(estimator.latest_checkpoint()), f"step_{step:08d}")
    result = estimator.evaluate(rows, checkpoint_path=path)
    assert result["global_step"] == step
    if w is not None:
        assert result == pytest.approx(expected(w, 12, step), rel=1e-6)


def test_a_path_may_name_a_checkpoint_of_another_model_dir(tmp_path):
    first, second = (estimator_in(tmp_path / name).train(rows, steps=steps) for name, steps in (("a", 2), ("b", 2)))
    second.train(rows, steps=1)
    mine, other = first.evaluate(rows), second.evaluate(rows)
    assert mine != other
    assert first.evaluate(rows, checkpoint_path=second.latest_checkpoint()) == other
    assert second.evaluate(rows, checkpoint_path=first.latest_checkpoint()) == mine


def test_a_hook_that_asks_to_stop_ends_it_with_the_metrics_so_far(estimator):
    class StopAt(SessionRunHook):
        def __init__(self, last):
            self.last, self.num_batches = last, 0

        def after_run(self, run_context, run_values):
            self.num_batches += 1
            if self.num_batches == self.last:
                run_context.request_stop()

    for last, num_rows in ((1, 4), (2, 8)):
        hook = StopAt(last)
        w = float(estimator.get_variable_value("w"))
        assert estimator.evaluate(rows, hooks=[hook]) == pytest.approx(expected(w, num_rows, 3), rel=1e-6)
        assert hook.num_batches == last


@pytest.mark.parametrize("path", ["/nope/model.ckpt-1", "", "step_00000001", "/nope/checkpoints/step_00000001"])
def test_a_path_of_no_checkpoint_is_an_error_of_value(estimator, path):
    with pytest.raises(
        ValueError, match=r"^checkpoint .*(there is no|expected a directory|no checkpoint of step)"
    ) as caught:
        estimator.evaluate(rows, checkpoint_path=path)
    assert type(caught.value) is NoCheckpointError


@pytest.mark.parametrize("steps", [0, -1])
def test_no_step_is_refused(estimator, steps):
    with pytest.raises(ValueError, match=f"^steps should be greater than 0, got {steps}$") as caught:
        estimator.evaluate(rows, steps=steps)
    assert type(caught.value) is UsageError


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"steps": 5.5}, "steps should be a whole number or None, got float 5.5"),
        ({"steps": "3"}, "steps should be a whole number or None, got str '3'"),
        ({"name": 3}, "name should be a str or None, got int 3"),
        ({"checkpoint_path": 3}, "checkpoint_path should be a str or None, got int 3"),
    ],
)
def test_types_that_it_refuses(estimator, arguments, fault):
    with pytest.raises(TypeError, match=f"^{re.escape(fault)}$") as caught:
        estimator.evaluate(rows, **arguments)
    assert type(caught.value) is ArgumentTypeError


@pytest.mark.parametrize(
    ("input_fn", "fault"),
    [
        (no_batches, "the input_fn for evaluation returned no batch"),
        (None, "expected an input_fn to call, got NoneType"),
        (3, "expected an input_fn to call, got int"),
        (lambda: 3, "returned int: expected a Dataset"),
        (lambda: {"x": X}, "the eval input has no labels: expected some as in training"),
        (lambda: ({"z": X}, Y), "the eval input has no feature 'x'"),
    ],
)
def test_an_input_that_it_refuses(estimator, input_fn, fault):
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        estimator.evaluate(input_fn)
    assert isinstance(caught.value, InputError)


def test_an_input_fn_gets_the_arguments_that_it_names(estimator):
    got: dict[str, Any] = {}

    def asking(config, mode, params):
        got.update(config=config, mode=mode, params=params)
        return rows()

    estimator.evaluate(asking)
    assert got == {"config": estimator.config, "mode": ModeKeys.EVAL, "params": {}}


# Variables


def test_names_are_sorted_and_the_step_is_among_them(estimator):
    assert estimator.get_variable_names() == ["global_step", "w"]


@pytest.mark.parametrize(("name", "dtype"), [("w", "float32"), ("global_step", "int64")])
def test_the_value_of_a_variable_is_an_array(estimator, name, dtype):
    value = estimator.get_variable_value(name)
    assert (value.shape, value.dtype.name) == ((), dtype)


def test_the_global_step_is_that_of_the_latest_checkpoint(estimator):
    assert estimator.get_variable_value("global_step") == 3
    assert estimator.latest_checkpoint().endswith("/checkpoints/step_00000003")


@pytest.mark.parametrize(
    ("name", "near"), [("v", ""), ("w/Adam", ""), ("global_steps", "; did you mean 'global_step'")]
)
def test_an_unknown_variable_is_named_with_the_nearest(estimator, name, near):
    with pytest.raises(ValueError, match=f"^there is no variable '{name}'{re.escape(near)}"):
        estimator.get_variable_value(name)
