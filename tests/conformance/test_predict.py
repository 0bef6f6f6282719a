"""Estimator.predict: what it yields, in which order, of which keys, and what it refuses."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

from psflow import Estimator, EstimatorSpec, ModeKeys, SessionRunHook, get_variable
from psflow.ps_runtime.errors import ArgumentTypeError, InputError, ModelFnError, NoCheckpointError, UsageError
from tests.conformance.programs import X, Y, batches, estimator_in, line, no_batches, rows


@pytest.fixture(scope="module")
def estimator(tmp_path_factory) -> Estimator:
    return estimator_in(tmp_path_factory.mktemp("trained") / "model").train(rows, steps=1)


def predicting(estimator: Estimator, what: Any) -> Estimator:
    """Return an Estimator of the same checkpoints whose model_fn predicts ``what(y)``."""

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        if mode != ModeKeys.PREDICT:
            return line(features, labels, mode)
        return EstimatorSpec(mode, predictions=what(get_variable("w") * features["x"]))

    return Estimator(model_fn, estimator.model_dir)


INPUTS = {
    "data set": rows,
    "generator": batches,
    "features alone": lambda: {"x": X},
    "features alone in batches": lambda: (features for features, _ in batches()),
    "without labels": lambda: ({"x": X}, None),
    "another batch size": lambda: rows(batch_size=5),
}


@pytest.mark.parametrize("input_fn", INPUTS.values(), ids=INPUTS.keys())
def test_each_row_once_in_order(estimator, input_fn):
    predicted = list(estimator.predict(input_fn))
    y = estimator.get_variable_value("w") * X
    assert [set(row) for row in predicted] == [{"y", "twice"}] * len(X)
    np.testing.assert_array_equal([row["y"] for row in predicted], y)
    np.testing.assert_array_equal([row["twice"] for row in predicted], 2 * y)


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        (None, {"y", "twice"}),
        ([], {"y", "twice"}),
        (["y"], {"y"}),
        (("twice",), {"twice"}),
        (["twice", "y"], {"y", "twice"}),
        ({"y"}, {"y"}),
        ("twice", {"twice"}),
    ],
)
@pytest.mark.parametrize("single", [True, False])
def test_the_keys_that_are_asked_for(estimator, keys, wanted, single):
    first = next(estimator.predict(rows, keys, yield_single_examples=single))
    assert set(first) == wanted


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        (["z"], "there is no prediction 'z'"),
        (["y", "z"], "there is no prediction 'z'"),
        (["twise"], "there is no prediction 'twise'; did you mean 'twice'?"),
    ],
)
def test_an_unknown_key_is_refused(estimator, keys, fault):
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}$") as caught:
        next(estimator.predict(rows, keys))
    assert type(caught.value) is UsageError


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        (3, "predict_keys should be a sequence of str, or None, got int 3"),
        ([3], "predict_keys[0] should be a str, got int 3"),
    ],
)
def test_keys_are_a_sequence_of_texts(estimator, keys, fault):
    with pytest.raises(TypeError, match=f"^{re.escape(fault)}$") as caught:
        next(estimator.predict(rows, keys))
    assert type(caught.value) is ArgumentTypeError


def test_a_hook_that_asks_to_stop_ends_it_after_its_batch(estimator):
    class Stop(SessionRunHook):
        def after_run(self, run_context, run_values):
            run_context.request_stop()

    assert len(list(estimator.predict(rows, hooks=[Stop()]))) == 4
    assert len(list(estimator.predict(rows, hooks=[SessionRunHook()]))) == 12


def test_whole_batches(estimator):
    found = list(estimator.predict(rows, ["y"], yield_single_examples=False))
    assert [batch["y"].shape for batch in found] == [(4,)] * 3
    np.testing.assert_array_equal(
        np.concatenate([batch["y"] for batch in found]), estimator.get_variable_value("w") * X
    )


@pytest.mark.parametrize(
    ("what", "shape"), [(lambda y: y, ()), (lambda y: y[:, None], (1,)), (lambda y: np.outer(y, [1, 2]), (2,))]
)
def test_an_array_without_a_name_is_predicted_as_an_array(estimator, what, shape):
    model = predicting(estimator, what)
    y = what(estimator.get_variable_value("w") * X)
    examples = list(model.predict(rows))
    assert [np.shape(row) for row in examples] == [shape] * len(X)
    np.testing.assert_array_equal(examples, y)
    np.testing.assert_array_equal(np.concatenate(list(model.predict(rows, yield_single_examples=False))), y)


def test_an_array_without_a_name_has_no_key(estimator):
    with pytest.raises(ValueError, match=r"^predict_keys: model_fn predicts one array, which has no key; leave"):
        next(predicting(estimator, lambda y: y).predict(rows, ["y"]))


def test_predictions_have_one_row_for_each_example_and_any_further_shape(estimator):
    y = estimator.get_variable_value("w") * X
    examples = list(predicting(estimator, lambda y: {"wide": np.outer(y, [1, 2]), "y": y}).predict(rows))
    np.testing.assert_array_equal([row["wide"] for row in examples], np.outer(y, [1, 2]))
    np.testing.assert_array_equal([row["y"] for row in examples], y)


@pytest.mark.parametrize(
    ("what", "shapes"),
    [
        (lambda y: {"a": y, "b": np.float32(1)}, "'a' of shape [4], 'b' of shape []"),
        (lambda y: {"a": y, "b": y[:1]}, "'a' of shape [4], 'b' of shape [1]"),
        (lambda y: np.float32(1), "'predictions' of shape []"),
        (lambda y: y[:2], "'predictions' of shape [2]"),
        (lambda y: np.tile(y, 2), "'predictions' of shape [8]"),
        (lambda y: {}, "nothing"),
    ],
)
def test_examples_need_a_row_of_each_prediction(estimator, what, shapes):
    said = (
        f"predicts {shapes} for 4 examples: expected one row of each prediction for each example; correct it, or call"
    )
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        next(predicting(estimator, what).predict(rows))
    assert type(caught.value) is ModelFnError


def test_batches_need_no_row_of_each_prediction(estimator):
    model = predicting(estimator, lambda y: {"a": y, "b": np.float32(1)})
    first = next(model.predict(rows, yield_single_examples=False))
    assert (first["a"].shape, first["b"].shape) == ((4,), ())


def test_nothing_happens_before_the_first_prediction_is_asked_for(make):
    predictions = make().predict(3)
    assert inspect.isgenerator(predictions)
    with pytest.raises(NoCheckpointError, match="there is no checkpoint yet; train first"):
        next(predictions)


def test_an_empty_input_has_no_predictions(estimator):
    assert list(estimator.predict(no_batches)) == []


@pytest.mark.parametrize(
    ("input_fn", "fault"),
    [
        (lambda: 3, "returned int: expected a Dataset"),
        (None, "expected an input_fn to call, got NoneType"),
        (lambda: ({"x": X}, Y, 1), "returned a tuple of 3"),
        (lambda: {"z": X}, "the predict input has no feature 'x'"),
        (lambda: {"x": X[:, None]}, "feature 'x'"),
    ],
)
def test_an_input_that_it_refuses(estimator, input_fn, fault):
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        next(estimator.predict(input_fn))
    assert isinstance(caught.value, InputError)


def test_an_input_fn_gets_the_arguments_that_it_names(estimator):
    got: dict[str, Any] = {}

    def asking(config, mode, params):
        got.update(config=config, mode=mode, params=params)
        return rows()

    next(estimator.predict(asking))
    assert got == {"config": estimator.config, "mode": ModeKeys.PREDICT, "params": {}}


def test_a_checkpoint_that_a_path_names(estimator):
    first = estimator.latest_checkpoint().replace("step_00000001", "step_00000000")
    predicted = [row["y"] for row in estimator.predict(rows, checkpoint_path=first)]
    np.testing.assert_array_equal(predicted, np.float32(0.5) * X)
