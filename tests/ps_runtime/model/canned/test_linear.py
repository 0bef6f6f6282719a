import math

import numpy as np
import pytest
import scipy.special
import sklearn.metrics

from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.gradients import GradientFn
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.linear import default_optimizer, linear_model, num_columns
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.optimizers import GradientDescent
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema

RNG = np.random.default_rng(13)
FEATURES = {"b": RNG.normal(size=(8, 3)), "a": RNG.normal(size=8)}
SCHEMA = InputSchema((ArraySpec("b", "float64", (3,)), ArraySpec("a", "float64", ())))
LABELS = RNG.integers(0, 3, 8)
TARGETS = RNG.normal(size=(8, 2))
CLASSIFIER = ModelCaller(
    linear_model, {"head": ClassifierSpec(3), "optimizer": None, "sparse_combiner": "sum"}, None, SCHEMA
)
REGRESSOR = ModelCaller(
    linear_model, {"head": RegressionHead(2), "optimizer": None, "sparse_combiner": "sum"}, None, SCHEMA
)
BIAS = "linear/linear_model/bias_weights"
A, B = "linear/linear_model/a/weights", "linear/linear_model/b/weights"


def some_values(built, dtype=np.float64):
    return {variable.name: RNG.normal(size=variable.shape).astype(dtype) for variable in built.model.variables}


def test_each_feature_has_weights_that_begin_at_zero():
    built = CLASSIFIER.build(FEATURES, LABELS, ModeKeys.TRAIN, seed=1)
    assert {v.name: v.shape for v in built.model.variables} == {A: (1, 3), B: (3, 3), BIAS: (3,)}
    assert {v.dtype for v in built.model.variables} == {"float32"}
    assert not any(value.any() for value in built.initial_values.values())
    assert [rule["name"] for rule in built.model.optimizers] == ["Ftrl"]


def test_a_single_array_has_weights_without_a_name():
    schema = InputSchema((ArraySpec("", "float64", (3,)),))
    built = REGRESSOR.reading(schema).build(FEATURES["b"], TARGETS, ModeKeys.TRAIN, seed=1)
    shapes = {v.name: v.shape for v in built.model.variables}
    assert shapes == {"linear/linear_model/weights": (3, 2), BIAS: (2,)}


def test_outputs_are_weighted_sums():
    built = CLASSIFIER.build(FEATURES, LABELS, ModeKeys.TRAIN, seed=1)
    values = some_values(built, np.float32)
    predictions = CLASSIFIER.apply(FEATURES, None, ModeKeys.PREDICT, ModelValues(values), 0).predictions
    expected = np.column_stack([FEATURES["a"], FEATURES["b"]]) @ np.vstack([values[A], values[B]]) + values[BIAS]
    np.testing.assert_allclose(predictions["logits"], expected, rtol=1e-4)


@pytest.mark.parametrize(("caller", "labels"), [(CLASSIFIER, LABELS), (REGRESSOR, TARGETS)], ids=["classes", "numbers"])
def test_the_gradient_of_each_weight_agrees_with_central_differences(caller, labels, central_differences):
    built = caller.build(FEATURES, labels, ModeKeys.TRAIN, seed=1)
    step, values = GradientFn(caller, built), some_values(built)
    gradients = step(FEATURES, labels, values, 0).gradients
    assert gradients.keys() == values.keys()
    for name, value in values.items():
        slopes = central_differences(lambda x, name=name: step(FEATURES, labels, {**values, name: x}, 0).loss, value)
        np.testing.assert_allclose(gradients[name], slopes, atol=1e-6)
        assert np.abs(slopes).max() > 1e-3, "a gradient that is zero shows nothing"


def test_a_classifier_measures_what_its_head_does():
    built = CLASSIFIER.build(FEATURES, LABELS, ModeKeys.TRAIN, seed=1)
    spec = CLASSIFIER.apply(FEATURES, LABELS, ModeKeys.EVAL, ModelValues(some_values(built, np.float32)), 0)
    assert spec.loss == pytest.approx(
        sklearn.metrics.log_loss(LABELS, scipy.special.softmax(spec.predictions["logits"], axis=1)), rel=1e-5
    )
    assert spec.eval_metric_ops.keys() == {"accuracy", "average_loss"}


def test_a_regressor_measures_what_its_head_does():
    built = REGRESSOR.build(FEATURES, TARGETS, ModeKeys.TRAIN, seed=1)
    spec = REGRESSOR.apply(FEATURES, TARGETS, ModeKeys.EVAL, ModelValues(some_values(built, np.float32)), 0)
    assert spec.predictions["predictions"].shape == (8, 2)
    assert spec.loss == pytest.approx(
        sklearn.metrics.mean_squared_error(TARGETS, spec.predictions["predictions"]), rel=1e-6
    )
    assert spec.eval_metric_ops.keys() == {"average_loss", "label/mean", "prediction/mean"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (InputSchema((ArraySpec("", "float32", (64,)),)), 1),
        (InputSchema((ArraySpec("x", "float32", (64,)), ArraySpec("word", "int64", (), 9))), 2),
        (InputSchema(tuple(ArraySpec(f"c{number}", "float32", ()) for number in range(49))), 49),
        (InputSchema((ArraySpec("features", "float32", (64,)),), columns=tuple(map(str, range(64)))), 64),
        (
            InputSchema(
                (ArraySpec("features", "float32", (64,)), ArraySpec("word", "int64", (), 9)),
                columns=tuple(map(str, range(64))),
            ),
            65,
        ),
    ],
)
def test_the_default_learning_rate_falls_with_the_number_of_columns(schema, expected):
    optimizer = default_optimizer(num_columns(schema, [spec.name for spec in schema.features]))
    assert optimizer.learning_rate == min(0.2, 1 / math.sqrt(expected))
    assert optimizer.config()["l1_regularization_strength"] == optimizer.config()["l2_regularization_strength"] == 0


def test_an_optimizer_that_is_given_is_used():
    params = {"head": RegressionHead(2), "optimizer": GradientDescent(learning_rate=1), "sparse_combiner": "sum"}
    caller = ModelCaller(linear_model, params, None)
    built = caller.reading(SCHEMA).build(FEATURES, TARGETS, ModeKeys.TRAIN, seed=1)
    assert built.model.optimizers == ({"name": "GradientDescent", "weight_decay": 0.0},)
