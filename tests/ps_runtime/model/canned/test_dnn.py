import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.losses import softmax_cross_entropy
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.gradients import GradientFn
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.dnn import HiddenUnits, Layer, backward, dnn_model, forward
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.optimizers import Adagrad
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema

RNG = np.random.default_rng(10)
FEATURES = RNG.normal(size=(8, 5))
LABELS = RNG.integers(0, 3, 8)
PARAMS = {
    "hidden_units": (6, 4),
    "activation_fn": "relu",
    "dropout": None,
    "head": ClassifierSpec(3),
    "optimizer": Adagrad(learning_rate=0.05),
}
SCHEMA = InputSchema((ArraySpec("", "float64", (5,)),))
CALLER = ModelCaller(dnn_model, PARAMS, None, SCHEMA)


def layers_of(variables):
    names = dict.fromkeys(name.rpartition("/")[0] for name in variables)
    return [Layer(name, variables[f"{name}/kernel"], variables[f"{name}/bias"]) for name in names]


def loss_of(variables):
    return softmax_cross_entropy(LABELS, forward(FEATURES, layers_of(variables), HiddenUnits()).outputs)


@pytest.mark.parametrize("widths", [(5, 3), (5, 6, 3), (5, 6, 4, 3)], ids=str)
def test_the_gradient_of_the_whole_network_agrees_with_central_differences(widths, central_differences):
    variables = {}
    for index in range(len(widths) - 1):
        variables[f"{index}/kernel"] = RNG.normal(size=widths[index : index + 2])
        variables[f"{index}/bias"] = RNG.normal(size=widths[index + 1])
    layers = layers_of(variables)
    gradients, _ = backward(forward(FEATURES, layers, HiddenUnits()), layers, loss_of(variables)[1])
    assert gradients.keys() == variables.keys()
    for name, value in variables.items():
        slopes = central_differences(lambda x, name=name: loss_of({**variables, name: x})[0], value)
        np.testing.assert_allclose(gradients[name], slopes, atol=1e-8)
        assert np.abs(slopes).max() > 1e-4, "a gradient that is zero shows nothing"


def test_the_variables_are_named_as_in_the_reference():
    built = CALLER.build(FEATURES, LABELS, ModeKeys.TRAIN, seed=1)
    assert {v.name: v.shape for v in built.model.variables} == {
        "dnn/hiddenlayer_0/kernel": (5, 6),
        "dnn/hiddenlayer_0/bias": (6,),
        "dnn/hiddenlayer_1/kernel": (6, 4),
        "dnn/hiddenlayer_1/bias": (4,),
        "dnn/logits/kernel": (4, 3),
        "dnn/logits/bias": (3,),
    }
    assert {v.dtype for v in built.model.variables} == {"float32"}
    assert {v.optimizer for v in built.model.variables} == {0}
    assert built.model.optimizers == (
        {"name": "Adagrad", "initial_accumulator_value": 0.1, "epsilon": 0.0, "weight_decay": 0.0},
    )
    assert not built.initial_values["dnn/logits/bias"].any()
    assert built.initial_values["dnn/logits/kernel"].any()


def test_a_training_call_gives_the_gradients_of_its_loss():
    built = CALLER.build(FEATURES, LABELS, ModeKeys.TRAIN, seed=1)
    result = GradientFn(CALLER, built)(FEATURES, LABELS, built.initial_values, 0)
    wide = {name: value.astype(np.float64) for name, value in built.initial_values.items()}
    layers = layers_of(wide)
    loss, gradient = loss_of(wide)
    assert result.loss == pytest.approx(loss, rel=1e-6)
    for name, expected in backward(forward(FEATURES, layers, HiddenUnits()), layers, gradient)[0].items():
        assert result.gradients[name].dtype == np.float32
        np.testing.assert_allclose(result.gradients[name], expected, atol=1e-6)
    assert result.learning_rates == (0.05,)


def test_steps_against_the_gradient_learn_the_labels():
    built = CALLER.build(FEATURES, LABELS, ModeKeys.TRAIN, seed=1)
    step, variables = GradientFn(CALLER, built), {n: v.copy() for n, v in built.initial_values.items()}
    first = step(FEATURES, LABELS, variables, 0).loss
    for _ in range(200):
        for name, gradient in step(FEATURES, LABELS, variables, 0).gradients.items():
            variables[name] -= 0.5 * gradient
    spec = CALLER.apply(FEATURES, LABELS, ModeKeys.EVAL, ModelValues(variables), 200)
    assert spec.loss < 0.1 * first
    assert spec.eval_metric_ops["accuracy"].result() == 1.0
    assert spec.predictions["class_ids"][:, 0].tolist() == LABELS.tolist()


def test_prediction_needs_no_labels_and_no_optimizer():
    built = CALLER.build(FEATURES, LABELS, ModeKeys.TRAIN, seed=1)
    caller = ModelCaller(
        dnn_model,
        {"hidden_units": (6, 4), "activation_fn": "relu", "dropout": None, "head": ClassifierSpec(3)},
        None,
        SCHEMA,
    )
    spec = caller.apply(FEATURES, None, ModeKeys.PREDICT, ModelValues(built.initial_values), 0)
    shapes = {name: value.shape for name, value in spec.predictions.items()}
    assert shapes == {
        "logits": (8, 3),
        "probabilities": (8, 3),
        "class_ids": (8, 1),
        "classes": (8, 1),
        "all_class_ids": (8, 3),
        "all_classes": (8, 3),
    }
    assert spec.loss is None


def test_named_features_are_the_matrix_of_their_sorted_names():
    built = CALLER.build(FEATURES, LABELS, ModeKeys.TRAIN, seed=1)
    named = {"b": FEATURES[:, 2:], "a": FEATURES[:, :2]}
    values = ModelValues(built.initial_values)
    schemas = [SCHEMA, InputSchema((ArraySpec("b", "float64", (3,)), ArraySpec("a", "float64", (2,))))]
    specs = [
        CALLER.reading(schema).apply(given, LABELS, ModeKeys.EVAL, values, 0)
        for given, schema in zip((FEATURES, named), schemas, strict=True)
    ]
    assert np.array_equal(specs[0].predictions["logits"], specs[1].predictions["logits"])


@pytest.mark.parametrize("mode", [ModeKeys.TRAIN, ModeKeys.EVAL])
def test_a_label_that_is_no_class_ends_the_call(mode):
    labels = LABELS.copy()
    labels[4] = 10
    with pytest.raises(InputError, match=r"label of row 4 of the batch is 10, expected an integer in \[0, 3\)"):
        CALLER.build(FEATURES, labels, mode, seed=1)
