"""Calls of a model_fn: its arguments, get_variable, optimizers, minimize and losses, in the forms that it may use."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest

import psflow
from psflow import (
    Adagrad,
    Adam,
    CosineDecay,
    Estimator,
    EstimatorSpec,
    ExponentialDecay,
    Ftrl,
    GradientDescent,
    ModeKeys,
    Momentum,
    PiecewiseConstant,
    PolynomialDecay,
    RMSProp,
    RunConfig,
    get_or_create_global_step,
    get_variable,
    initializers,
    losses,
)
from psflow.ps_runtime.errors import ArgumentTypeError, ModelFnError, ModelFnTypeError, UsageError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.scope import BuildScope

# Estimator(model_fn, model_dir, config, params)


def features_only(features: Any) -> None: ...
def features_and_labels(features: Any, labels: Any) -> None: ...
def all_five(features: Any, labels: Any, mode: str, params: Any, config: Any) -> None: ...
def in_any_order(config: Any, labels: Any, features: Any) -> None: ...
def and_any_others(features: Any, labels: Any, *args: Any, **kwargs: Any) -> None: ...


class Methods:
    def model_fn(self, features: Any, labels: Any, mode: str) -> None: ...

    @staticmethod
    def static(features: Any, labels: Any) -> None: ...


@pytest.mark.parametrize(
    "model_fn",
    [
        features_only,
        features_and_labels,
        all_five,
        in_any_order,
        and_any_others,
        Methods().model_fn,
        Methods.static,
        lambda features, labels: None,
    ],
)
def test_a_model_fn_takes_any_of_the_five_arguments(model_fn, tmp_path):
    estimator = Estimator(model_fn, tmp_path)
    assert (estimator.model_fn, estimator.params, estimator.model_dir) == (model_fn, {}, str(tmp_path))


@pytest.mark.parametrize(
    ("model_fn", "error", "fault"),
    [
        (None, ModelFnTypeError, "model_fn should be callable, got NoneType"),
        (3, ModelFnTypeError, "model_fn should be callable, got int"),
        ({}, ModelFnTypeError, "model_fn should be callable, got dict"),
        (lambda labels: 0, ModelFnError, "must take the argument 'features'"),
        (lambda: 0, ModelFnError, "must take the argument 'features'"),
        (
            lambda features, foo: 0,
            ModelFnError,
            "takes the unknown argument 'foo'; expected some of features, labels, mode",
        ),
        (lambda features, label: 0, ModelFnError, "takes the unknown argument 'label'; .*did you mean 'labels'"),
    ],
)
def test_what_no_model_fn_is(model_fn, error, fault, tmp_path):
    with pytest.raises(ValueError, match=fault) as caught:
        Estimator(model_fn, tmp_path)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"config": "x"}, "Estimator: config should be a RunConfig or None, got str 'x'"),
        ({"config": ""}, "Estimator: config should be a RunConfig or None, got str ''"),
        ({"config": {}}, "Estimator: config should be a RunConfig or None, got dict {}"),
        ({"config": RunConfig}, "Estimator: config should be a RunConfig or None, got type <class "),
        ({"params": 3}, "Estimator: params should be a mapping or None, got int 3"),
        ({"params": [1]}, "Estimator: params should be a mapping or None, got list [1]"),
        ({"params": ""}, "Estimator: params should be a mapping or None, got str ''"),
        ({"model_dir": 3}, "Estimator: model_dir should be a str or None, got int 3"),
    ],
)
def test_an_argument_of_an_estimator_of_another_type(arguments, fault):
    with pytest.raises(TypeError, match=f"^{re.escape(fault)}") as caught:
        Estimator(all_five, **arguments)
    assert type(caught.value) is ArgumentTypeError
    assert isinstance(caught.value, ValueError)


def test_two_model_dirs_are_refused_unless_they_are_one(tmp_path):
    config = RunConfig(model_dir=str(tmp_path))
    assert Estimator(all_five, tmp_path, config).model_dir == str(tmp_path)
    assert Estimator(all_five, config=config).model_dir == str(tmp_path)
    with pytest.raises(ValueError, match=r"^model_dir is 'other', but that of config is '.*'; give only one$"):
        Estimator(all_five, "other", config)


@pytest.mark.parametrize("arguments", [{"model_dir": ""}, {"config": None, "model_dir": ""}])
def test_an_empty_model_dir_is_refused(arguments):
    with pytest.raises(ValueError, match=r"^model_dir should be a path or a URL, got ''"):
        Estimator(all_five, **arguments)


def test_without_a_model_dir_it_is_a_temporary_one_and_says_so(caplog):
    model_dir = Estimator(all_five).model_dir
    assert f"no model_dir given: checkpoints go to the temporary directory {model_dir}" in caplog.text


def test_params_are_copied(tmp_path):
    params = {"units": [1, 2]}
    estimator = Estimator(all_five, tmp_path, params=params)
    params["units"].append(3)
    assert estimator.params == {"units": [1, 2]}


@pytest.mark.parametrize("params", [None, {}])
def test_no_params_need_no_argument(params, tmp_path):
    assert Estimator(features_only, tmp_path, params=params).params == {}


def test_params_without_the_argument_have_no_effect_and_are_refused(tmp_path):
    said = "^features_only does not take the argument 'params', but params are given: a, b$"
    with pytest.raises(ValueError, match=said) as caught:
        Estimator(features_only, tmp_path, params={"a": 1, "b": 2})
    assert type(caught.value) is ModelFnError


# get_variable


def made(**asked: Any) -> Any:
    with BuildScope(0, 7):
        return get_variable("v", **asked)


@pytest.mark.parametrize(
    ("asked", "shape", "dtype"),
    [
        ({}, (), "float32"),
        ({"shape": None}, (), "float32"),
        ({"shape": 3}, (3,), "float32"),
        ({"shape": np.int64(3)}, (3,), "float32"),
        ({"shape": [2, 3]}, (2, 3), "float32"),
        ({"shape": (2, 3), "dtype": None, "initializer": None, "trainable": None}, (2, 3), "float32"),
        ({"shape": [2], "dtype": "float64"}, (2,), "float64"),
        ({"initializer": 0.5}, (), "float32"),
        ({"initializer": 0.5, "dtype": np.float64}, (), "float64"),
        ({"initializer": [1.0, 2.0]}, (2,), "float64"),
        ({"initializer": [1.0, 2.0], "dtype": np.float32}, (2,), "float32"),
        ({"initializer": np.ones((2, 3))}, (2, 3), "float64"),
        ({"initializer": np.ones(2, np.float32)}, (2,), "float32"),
        ({"initializer": np.float32(1)}, (), "float32"),
        ({"initializer": 1, "trainable": False}, (), "int64"),
        ({"initializer": 1, "dtype": np.float32}, (), "float32"),
        ({"initializer": True, "trainable": False}, (), "bool"),
    ],
)
def test_shape_and_dtype_of_a_variable(asked, shape, dtype):
    value = made(**asked)
    assert (value.shape, value.dtype.name) == (shape, dtype)


@pytest.mark.parametrize("value", [0.5, [1.0, 2.0], np.float32([[1, 2]]), -3.0])
def test_a_value_as_initializer_is_the_first_value(value):
    np.testing.assert_array_equal(made(initializer=value), value)


@pytest.mark.parametrize("shape", [(), [], 2, (2,), [2, 3]])
def test_a_value_has_a_shape_already(shape):
    said = f"'v' is a value, which sets the shape: leave out shape {shape!r}, or give initializers.constant(value)"
    with pytest.raises(ValueError, match=re.escape(said)):
        made(shape=shape, initializer=0.5)


def test_a_constant_fills_a_shape():
    np.testing.assert_array_equal(made(shape=[2], initializer=initializers.constant(0.5)), [0.5, 0.5])


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"shape": -1}, r"the shape of variable 'v' is \(-1,\), expected a tuple of integers >= 0"),
        ({"shape": 1.5}, "the shape of variable 'v' is 1.5, expected a tuple of integers >= 0"),
        ({"shape": "2"}, "the shape of variable 'v' is '2', expected a tuple of integers >= 0"),
        ({"initializer": 1}, "the dtype of variable 'v' is int64, expected a float dtype, or trainable=False"),
        ({"initializer": "zeros"}, "the dtype of variable 'v' is <U5, expected a float dtype"),
        ({"initializer": float("nan")}, "the initializer of variable 'v' returned nan, expected finite numbers"),
    ],
)
def test_what_no_variable_is(asked, fault):
    with pytest.raises(ValueError, match=fault) as caught:
        made(**asked)
    assert type(caught.value) is ModelFnError


def test_no_variable_is_called_global_step():
    with BuildScope(0, 7), pytest.raises(ModelFnError, match="'global_step' is reserved for the step count of psflow"):
        get_variable("global_step")


def test_trainable_has_no_place():
    with pytest.raises(TypeError, match="positional arguments"):
        get_variable("v", (2,), np.float32, None, None)


# Optimizers and schedules


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (GradientDescent(0.1), {"learning_rate": 0.1}),
        (Momentum(0.1, 0.5), {"learning_rate": 0.1, "momentum": 0.5}),
        (Adagrad(0.1, 0.2), {"learning_rate": 0.1, "initial_accumulator_value": 0.2}),
        (Adam(), {"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}),
        (Adam(0.1, 0.2, 0.3, 0.4), {"learning_rate": 0.1, "beta1": 0.2, "beta2": 0.3, "epsilon": 0.4}),
        (RMSProp(0.1), {"learning_rate": 0.1, "decay": 0.9, "momentum": 0.0, "epsilon": 1e-10, "centered": False}),
        (RMSProp(0.1, 0.8, 0.1, 1e-5), {"learning_rate": 0.1, "decay": 0.8, "momentum": 0.1, "epsilon": 1e-5}),
        (
            Ftrl(0.1, -0.25, 0.2, 0.3, 0.4),
            {
                "learning_rate": 0.1,
                "learning_rate_power": -0.25,
                "initial_accumulator_value": 0.2,
                "l1_regularization_strength": 0.3,
                "l2_regularization_strength": 0.4,
            },
        ),
    ],
)
def test_hyper_parameters_have_the_places_of_the_original(made, named):
    assert made == type(made)(**named)
    assert {name: getattr(made, name) for name in named} == named


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        (GradientDescent, (0.1, False)),
        (Momentum, (0.1, 0.9, True)),
        (Adagrad, (0.1, 0.1, True)),
        (Adam, (0.1, 0.9, 0.999, 1e-8, True)),
        (RMSProp, (0.1, 0.9, 0.0, 1e-10, True)),
        (Ftrl, (0.1, -0.5, 0.1, 0.0, 0.0, True)),
    ],
)
def test_use_locking_has_no_place_that_means_something_else(kind, places):
    kind(*places[:-1])
    with pytest.raises(TypeError, match="positional arguments"):
        kind(*places)


@pytest.mark.parametrize(
    ("schedule", "step", "rate"),
    [
        (ExponentialDecay(0.1, 10, 0.5), 20, 0.025),
        (ExponentialDecay(0.1, 10, 0.5, True), 19, 0.05),
        (PolynomialDecay(0.1, 10, 0.0), 5, 0.05),
        (PolynomialDecay(0.1, 10, 0.0, 2.0, True), 15, 0.1 / 16),
        (PiecewiseConstant([10], [0.1, 0.2]), 10, 0.1),
        (PiecewiseConstant([10], [0.1, 0.2]), 11, 0.2),
        (CosineDecay(0.1, 10), 5, 0.05),
        (CosineDecay(0.1, 10, 0.5), 10, 0.05),
        (lambda step: 0.1 * step, 3, 0.3),
        (0.1, 3, 0.1),
    ],
)
def test_a_schedule_is_a_learning_rate(schedule, step, rate):
    assert math.isclose(GradientDescent(schedule).learning_rate_at(step), rate)


@pytest.mark.parametrize("given", ["0.1", None, True, [0.1], pytest.param(10**400, id="10**400")])
def test_what_is_neither_number_nor_schedule_is_no_learning_rate(given):
    with pytest.raises(ValueError, match=f"learning_rate is {re.escape(repr(given))}, expected a number or a schedule"):
        GradientDescent(given)


@pytest.mark.parametrize("name", ["CosineDecay", "ExponentialDecay", "PiecewiseConstant", "PolynomialDecay"])
def test_a_schedule_stands_beside_the_optimizers(name):
    assert getattr(psflow, name) is getattr(psflow.optimizers, name)


# minimize and apply_gradients


def step_of(train_op: Any, loss: Any = 1.0, global_step: int = 0) -> Any:
    def model_fn(features: Any, mode: str) -> EstimatorSpec:
        get_variable("w", initializer=1.0)
        return EstimatorSpec(mode, loss=loss, train_op=train_op())

    return ModelCaller(model_fn, {}, None)(np.ones(1), None, ModeKeys.TRAIN, BuildScope(global_step, 1))


RULE = GradientDescent(0.1)


@pytest.mark.parametrize(
    "train_op",
    [
        lambda: RULE.minimize(1.0),
        lambda: RULE.minimize(1.0, None, ["w"]),
        lambda: RULE.minimize(1.0, get_or_create_global_step()),
        lambda: RULE.minimize(1.0, global_step=get_or_create_global_step(), var_list=("w",)),
        lambda: RULE.minimize(1.0, np.int64(get_or_create_global_step())),
        lambda: RULE.apply_gradients({"w": 1.0}),
        lambda: RULE.apply_gradients({"w": None}, None),
        lambda: RULE.apply_gradients({"w": 1.0}, get_or_create_global_step()),
    ],
)
@pytest.mark.parametrize("global_step", [0, 7])
def test_the_global_step_may_be_given(train_op, global_step):
    [op] = step_of(train_op, global_step=global_step).train_ops
    assert op.global_step in (None, global_step)


@pytest.mark.parametrize("use", [lambda step: RULE.minimize(1.0, step), lambda s: RULE.apply_gradients({}, s)])
def test_another_step_than_the_global_step_is_refused(use):
    said = r"gave its optimizer global_step 3, expected 7, that of get_or_create_global_step\(\): psflow itself counts"
    with pytest.raises(ModelFnError, match=said):
        step_of(lambda: use(3), global_step=7)


@pytest.mark.parametrize(
    ("use", "fault"),
    [
        (lambda: RULE.minimize(1.0, ["w"]), r"minimize: global_step should be the number of .*, got \['w'\]"),
        (lambda: RULE.minimize(1.0, 1.5), "minimize: global_step should be the number of .*, got 1.5"),
        (lambda: RULE.minimize(1.0, True), "minimize: global_step should be the number of .*, got True"),
        (lambda: RULE.minimize(1.0, None, "w"), "minimize: var_list should be a sequence of variable names, got 'w'"),
        (
            lambda: RULE.minimize(1.0, None, [3]),
            r"minimize: var_list should be a sequence of variable names, got \[3\]",
        ),
        (lambda: RULE.apply_gradients({}, "a"), "apply_gradients: global_step should be the number of .*, got 'a'"),
        (lambda: RULE.apply_gradients([(1.0, "w")]), "apply_gradients: gradients should be a mapping of .*, got list"),
        (lambda: RULE.apply_gradients(None), "apply_gradients: gradients should be a mapping of .*, got NoneType"),
        (
            lambda: RULE.minimize(losses.mean_squared_error(np.ones(2), np.zeros(2))),
            "minimize: loss should be a number, got a tuple; a function of psflow.losses returns the loss and its",
        ),
    ],
)
def test_what_an_optimizer_does_not_take(use, fault):
    with pytest.raises(TypeError, match=f"^{fault}") as caught:
        use()
    assert type(caught.value) is ModelFnTypeError


@pytest.mark.parametrize("loss", [anp.ones(1), np.ones((1, 1)), np.float32(1), 1.0])
def test_a_loss_of_one_number_is_a_scalar(loss):
    assert float(step_of(lambda: RULE.apply_gradients({}), loss).loss) == 1.0


@pytest.mark.parametrize(
    ("returned", "error", "fault"),
    [
        (None, ModelFnTypeError, "must return an EstimatorSpec, got NoneType"),
        ({"loss": 1}, ModelFnTypeError, "must return an EstimatorSpec, got dict"),
        (EstimatorSpec("eval", loss=1.0), ModelFnError, "was called for train, but its EstimatorSpec is for eval"),
    ],
)
def test_what_a_model_fn_must_not_return(returned, error, fault):
    with pytest.raises(ValueError, match=fault) as caught:
        ModelCaller(lambda features: returned, {}, None)(1, None, ModeKeys.TRAIN, BuildScope(0, 1))
    assert type(caught.value) is error


# Losses


LOSSES = [losses.mean_squared_error, losses.sigmoid_cross_entropy, losses.softmax_cross_entropy]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_takes_labels_first_as_the_original_does(loss):
    assert next(iter(inspect.signature(loss).parameters)) == "labels"


def test_one_hot_labels_are_refused_by_the_loss_of_class_ids():
    said = r"softmax_cross_entropy: expected labels \(batch,\) and logits \(batch, num_classes\), got \(2, 3\) and"
    with pytest.raises(UsageError, match=said):
        losses.softmax_cross_entropy(np.eye(2, 3), np.zeros((2, 3)))
