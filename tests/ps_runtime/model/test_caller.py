"""Arguments, results and limits of a model_fn."""

from __future__ import annotations

import numpy as np
import pytest

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Adam, GradientDescent
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema

X = np.float32([[1, 2], [3, 4], [5, 6]])
Y = np.float32([1, 2, 3])
SCHEMA = InputSchema((ArraySpec("", "float32", (2,)),))
SGD = GradientDescent(learning_rate=0.1)


def linear(features, labels, mode):
    w = get_variable("w", (2,))
    error = features @ w - labels
    return EstimatorSpec(mode, loss=np.mean(error**2), train_op=SGD.apply_gradients({"w": features.T @ error}))


def build(model_fn, mode=ModeKeys.TRAIN, seed=1):
    return ModelCaller(model_fn, {"units": 3}, "the config").build(X, Y, mode, seed)


@pytest.mark.parametrize(
    "names", ["features", "features, mode", "labels, features", "params, features, config", "features, input_schema"]
)
def test_gives_a_model_fn_the_arguments_that_it_names(names):
    seen = {}
    scope = {"seen": seen}
    exec(f"def model_fn({names}):\n    seen.update(locals())\n    return spec()", scope)
    scope["spec"] = lambda: EstimatorSpec(ModeKeys.PREDICT, predictions=Y)
    caller = ModelCaller(scope["model_fn"], {"units": 3}, "the config").reading(SCHEMA)
    caller.build(X, Y, ModeKeys.PREDICT, 1)
    given = {"features": X, "labels": Y, "mode": ModeKeys.PREDICT, "params": {"units": 3}, "config": "the config"}
    given["input_schema"] = SCHEMA
    assert seen.keys() == set(names.split(", "))
    for name in seen:
        assert seen[name] is given[name] or seen[name] == given[name]


def test_a_model_fn_that_asks_for_a_schema_is_not_called_without_one():
    caller = ModelCaller(lambda features, input_schema: None, {}, None)
    with pytest.raises(ModelFnError, match="takes input_schema, but the schema of its training input is not known"):
        caller.build(X, Y, ModeKeys.TRAIN, 1)


def test_takes_a_method_and_an_argument_with_a_default():
    class Model:
        def model_fn(self, features, labels, mode, verbose=False):
            assert not verbose
            return linear(features, labels, mode)

    assert build(Model().model_fn).model.variables[0].name == "w"


def test_refuses_an_unknown_argument_with_the_near_name():
    def model_fn(features, lables):
        raise AssertionError

    with pytest.raises(
        ModelFnError, match=r"takes the unknown argument 'lables'; expected some of .*did you mean 'labels'"
    ):
        ModelCaller(model_fn, {}, None)


def test_says_all_that_is_wrong_with_the_arguments():
    with pytest.raises(ModelFnError) as caught:
        ModelCaller(lambda feature, modes: None, {}, None)
    assert len(caught.value.faults) == 3
    assert "must take the argument 'features'" in str(caught.value)


def test_refuses_what_cannot_be_called():
    with pytest.raises(ModelFnError, match="model_fn should be callable, got dict"):
        ModelCaller({}, {}, None)


def test_refuses_another_return_type():
    with pytest.raises(ModelFnError, match="must return an EstimatorSpec, got tuple"):
        build(lambda features: (1, 2))


def test_refuses_a_spec_for_another_mode():
    with pytest.raises(ModelFnError, match="was called for train, but its EstimatorSpec is for infer"):
        build(lambda features: EstimatorSpec(ModeKeys.PREDICT, predictions=features))


def test_refuses_a_model_without_trainable_variables():
    def model_fn(features, mode):
        get_variable("b", trainable=False)
        return EstimatorSpec(mode, loss=1.0, train_op=SGD.apply_gradients({}))

    with pytest.raises(
        ModelFnError, match="created no trainable variable and no table; call get_variable or embedding_lookup"
    ):
        build(model_fn)


@pytest.mark.parametrize(
    ("loss", "said"), [(np.float32([1, 2]), r"float32\[2\]"), ("high", r"str\d+\[\]"), (np.array(None), r"object\[\]")]
)
def test_refuses_a_loss_that_is_no_number(loss, said):
    def model_fn(features, mode):
        get_variable("w")
        return EstimatorSpec(mode, loss=loss, train_op=SGD.apply_gradients({"w": 0}))

    with pytest.raises(ModelFnError, match=rf"must be a scalar number, got {said}; take its mean"):
        build(model_fn)


def test_writes_down_variables_in_order_with_their_optimizers():
    def model_fn(features, mode):
        get_variable("b", (3,), np.float64)
        get_variable("a", (2, 2))
        get_variable("count", trainable=False)
        ops = [SGD.apply_gradients({"a": 0}), Adam(learning_rate=0.1).apply_gradients({"b": 0})]
        return EstimatorSpec(mode, loss=0.0, train_op=ops)

    model = build(model_fn).model
    assert [(v.name, v.shape, v.dtype, v.optimizer) for v in model.variables] == [
        ("b", (3,), "float64", 1),
        ("a", (2, 2), "float32", 0),
        ("count", (), "float32", None),
    ]
    assert [config["name"] for config in model.optimizers] == ["GradientDescent", "Adam"]


def test_a_single_optimizer_has_all_trainable_variables_though_the_first_batch_lacks_some_gradients():
    def model_fn(features, mode):
        get_variable("a")
        get_variable("b")
        return EstimatorSpec(mode, loss=0.0, train_op=SGD.apply_gradients({"a": 0, "b": None}))

    assert [v.optimizer for v in build(model_fn).model.variables] == [0, 0]


def test_refuses_train_ops_that_contradict_the_variables():
    def model_fn(features, mode):
        get_variable("weight", (2,))
        get_variable("mean", trainable=False)
        ops = [
            SGD.apply_gradients({"weight": 0, "weigth": 0, "mean": 0}),
            Adam(learning_rate=0.1).apply_gradients({"weight": 0}),
        ]
        return EstimatorSpec(mode, loss=0.0, train_op=ops)

    with pytest.raises(ModelFnError) as caught:
        build(model_fn)
    text = str(caught.value)
    assert "unknown variable 'weigth'; did you mean 'weight'?" in text
    assert "train_op names 'mean', which is not trainable" in text
    assert "variable 'weight' is trained by two optimizers" in text


def test_initial_values_depend_on_seed_and_name_alone():
    def both(features, labels, mode):
        get_variable("first", (4,))
        return linear(features, labels, mode)

    assert np.array_equal(build(linear, seed=7).initial_values["w"], build(both, seed=7).initial_values["w"])
    assert not np.array_equal(build(linear, seed=7).initial_values["w"], build(linear, seed=8).initial_values["w"])


def test_applies_a_model_to_given_values():
    def model_fn(features, mode):
        return EstimatorSpec(mode, predictions=features @ get_variable("w", (2,)))

    caller = ModelCaller(model_fn, {}, None)
    spec = caller.apply(X, None, ModeKeys.PREDICT, ModelValues({"w": np.float32([1, 10])}), 5)
    assert spec.predictions == pytest.approx([21, 43, 65])
    with pytest.raises(ModelFnError, match=r"requested variable 'w' as float32\[2\], but it is float32\[3\]"):
        caller.apply(X, None, ModeKeys.PREDICT, ModelValues({"w": np.zeros(3, np.float32)}), 5)


def test_applies_a_model_to_numbers_that_are_no_arrays():
    caller = ModelCaller(lambda features, mode: EstimatorSpec(mode, predictions=features * get_variable("b")), {}, None)
    found = caller.apply(X, None, ModeKeys.PREDICT, ModelValues({"b": np.float32(2)}), 5)
    assert found.predictions.tolist() == (2 * X).tolist()
