"""Gradients manually and by autograd: the same numbers, the same refusals."""

from __future__ import annotations

import math
import time

import autograd.numpy as anp
import numpy as np
import pytest
from autograd.extend import primitive

from psflow import metrics
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.model import summary
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.gradients import GradientFn
from psflow.ps_runtime.model.calls.scope import get_or_create_global_step, get_variable
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Adam, GradientDescent, Momentum

RNG = np.random.default_rng(5)
X = RNG.normal(size=(12, 3)).astype(np.float32)
Y = RNG.normal(size=12).astype(np.float32)
VALUES = {"w": np.float32([0.3, -0.2, 0.7]), "b": np.array(0.1, np.float32)}
SGD = GradientDescent(learning_rate=0.5)
ADAM = Adam(learning_rate=0.25)


def by_hand(features, labels, mode):
    w, b = get_variable("w", (3,)), get_variable("b")
    error = features @ w + b - labels
    gradients = {"w": 2 * features.T @ error / len(error), "b": 2 * error.mean()}
    return EstimatorSpec(mode, loss=np.mean(error**2), train_op=SGD.apply_gradients(gradients))


def traced(train_op):
    def model_fn(features, labels, mode):
        w, b = get_variable("w", (3,)), get_variable("b")
        loss = anp.mean((anp.dot(features, w) + b - labels) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=train_op(loss))

    return model_fn


def training(model_fn):
    caller = ModelCaller(model_fn, {}, None)
    return GradientFn(caller, caller.build(X, Y, ModeKeys.TRAIN, seed=1))


def step(model_fn, values=VALUES, global_step=0):
    return training(model_fn)(X, Y, values, global_step)


def test_autograd_agrees_with_gradients_by_hand():
    expected, found = step(by_hand), step(traced(lambda loss: SGD.minimize(loss)))
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    assert type(found.loss) is float
    assert found.gradients.keys() == {"w", "b"}
    for name, gradient in found.gradients.items():
        np.testing.assert_allclose(gradient, expected.gradients[name], rtol=1e-5)
        assert gradient.dtype == np.float32
        assert gradient.shape == VALUES[name].shape


def test_a_var_list_leaves_the_others_alone():
    result = step(traced(lambda loss: SGD.minimize(loss, var_list=["b"])))
    assert result.gradients.keys() == {"b"}
    np.testing.assert_allclose(result.gradients["b"], step(by_hand).gradients["b"], rtol=1e-5)


def test_two_optimizers_share_the_variables():
    result = step(traced(lambda loss: [SGD.minimize(loss, var_list=["w"]), ADAM.minimize(loss, var_list=["b"])]))
    for name, gradient in step(by_hand).gradients.items():
        np.testing.assert_allclose(result.gradients[name], gradient, rtol=1e-5)
    assert result.learning_rates == (0.5, 0.25)


def test_two_optimizers_may_minimize_two_losses():
    def model_fn(features, labels, mode):
        w, b = get_variable("w", (3,)), get_variable("b")
        ops = [SGD.minimize(anp.sum(w**2), var_list=["w"]), ADAM.minimize(5 * b, var_list=["b"])]
        return EstimatorSpec(mode, loss=anp.sum(w), train_op=ops)

    result = step(model_fn)
    np.testing.assert_allclose(result.gradients["w"], 2 * VALUES["w"])
    assert result.gradients["b"] == 5
    assert result.loss == pytest.approx(0.8)


def test_one_optimizer_may_trace_while_another_is_told():
    ops = lambda loss: [SGD.minimize(loss, var_list=["w"]), ADAM.apply_gradients({"b": 3.0})]  # noqa: E731
    result = step(traced(ops))
    np.testing.assert_allclose(result.gradients["w"], step(by_hand).gradients["w"], rtol=1e-5)
    assert result.gradients["b"] == 3


def test_a_variable_that_the_loss_does_not_depend_on_has_no_gradient():
    def model_fn(features, labels, mode):
        w, b = get_variable("w", (3,)), get_variable("b")
        uses_b = get_or_create_global_step() % 2 == 0
        return EstimatorSpec(mode, loss=(loss := anp.sum(w) + (b if uses_b else 0.0)), train_op=SGD.minimize(loss))

    train = training(model_fn)
    assert train(X, Y, VALUES, 0).gradients.keys() == {"w", "b"}
    assert train(X, Y, VALUES, 1).gradients.keys() == {"w"}


def test_plain_numpy_functions_that_autograd_sees_keep_the_trace():
    def model_fn(features, labels, mode):
        w, b = get_variable("w", (3,)), get_variable("b")
        loss = np.mean((features @ w + np.tanh(b) - labels) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=SGD.minimize(loss))

    assert step(model_fn).gradients.keys() == {"w", "b"}


def test_a_function_without_a_gradient_here_is_named_with_what_helps():
    @primitive
    def cube(x):
        return x**3

    def model_fn(features, mode):
        loss = anp.sum(cube(get_variable("w", (3,))))
        return EstimatorSpec(mode, loss=loss, train_op=SGD.minimize(loss))

    with pytest.raises(ModelFnError, match=r"no gradient \(VJP of cube .*\); call defvjp in model_fn, or install"):
        step(model_fn, {"w": VALUES["w"]})


def test_a_loss_without_any_variable_is_refused():
    def model_fn(features, mode):
        get_variable("w", (3,))
        return EstimatorSpec(mode, loss=anp.mean(features), train_op=SGD.minimize(anp.mean(features)))

    with pytest.raises(ModelFnError, match="the loss depends on no variable"):
        step(model_fn, {"w": VALUES["w"]})


@pytest.mark.parametrize(
    ("leave", "said"),
    [
        (lambda w: float(anp.sum(w)), r"float\(\) was called on a traced value"),
        (lambda w: int(anp.sum(w)), r"int\(\) was called"),
        (lambda w: round(anp.sum(w)), r"round\(\) was called"),
        (lambda w: math.sqrt(anp.sum(w) ** 2), r"float\(\) was called"),
        (lambda w: anp.sum(w).item(), r"\.item\(\) was called"),
        (lambda w: sum(w[0].tolist()), r"\.tolist\(\) was called"),
        (lambda w: np.sum(np.dot(np.ones((400, 400)), w)), "a plain numpy function was called on a traced value"),
        (lambda w: np.einsum("ij->", w), "a plain numpy function was called"),
        (lambda w: np.asarray([w, w]).sum(), "a plain numpy function was called"),
    ],
)
def test_a_traced_value_that_leaves_the_trace_is_told_at_once(leave, said):
    def model_fn(features, mode):
        w = get_variable("w", (400, 400))
        return EstimatorSpec(mode, loss=(loss := leave(w)), train_op=SGD.minimize(loss))

    train = training(model_fn)
    started = time.thread_time()
    with pytest.raises(ModelFnError, match=rf"{said}.*import autograd.numpy as np"):
        train(X, Y, {"w": np.ones((400, 400), np.float32)}, 0)
    assert time.thread_time() - started < 1  # of this thread alone, so that a busy machine does not matter


def test_a_loss_of_several_numbers_is_refused():
    def model_fn(features, labels, mode):
        w = get_variable("w", (3,))
        loss = w if get_or_create_global_step() else anp.sum(w)
        return EstimatorSpec(mode, loss=loss, train_op=SGD.minimize(loss))

    with pytest.raises(ModelFnError, match=r"must be a scalar number, got float32\[3\]"):
        step(model_fn, {"w": VALUES["w"]}, global_step=1)


def test_metrics_predictions_and_summaries_of_a_traced_call_are_plain():
    def model_fn(features, labels, mode):
        w = get_variable("w", (3,))
        predicted = anp.dot(features, w)
        loss = anp.mean((predicted - labels) ** 2)
        summary.scalar("double", 2 * loss)
        return EstimatorSpec(
            mode,
            predictions={"y": predicted},
            loss=loss,
            train_op=SGD.minimize(loss),
            eval_metric_ops={
                "mse": metrics.mean_squared_error(labels, predicted),
                "accuracy": metrics.accuracy(labels > 0, predicted > 0),
                "auc": metrics.auc(labels > 0, 1 / (1 + anp.exp(-predicted))),
                "mean": metrics.mean(predicted, weights=anp.ones(12)),
            },
        )

    result = step(model_fn, {"w": VALUES["w"]})
    assert type(result.spec.predictions["y"]) is np.ndarray
    np.testing.assert_allclose(result.spec.predictions["y"], X @ VALUES["w"], rtol=1e-5)
    found = {name: metric.result() for name, metric in result.spec.eval_metric_ops.items()}
    assert found["mse"] == pytest.approx(result.loss, rel=1e-5)
    assert found["accuracy"] == np.mean((Y > 0) == (X @ VALUES["w"] > 0))
    assert all(type(value) is float for value in found.values())
    assert float(result.summaries["double"]) == pytest.approx(2 * result.loss)
    assert not hasattr(result.summaries["double"], "_value")


def test_a_learning_rate_may_be_a_schedule_of_the_global_step():
    optimizer = GradientDescent(learning_rate=lambda global_step: 1 / (1 + global_step))
    train = training(traced(lambda loss: optimizer.minimize(loss)))
    assert [train(X, Y, VALUES, n).learning_rates for n in (0, 1, 3)] == [(1.0,), (0.5,), (0.25,)]


def changing(first, later):
    """Return a model_fn that answers with `first` at step 0 and with `later` afterwards."""

    def model_fn(features, labels, mode):
        get_variable("w", (3,))
        get_variable("b")
        get_variable("fixed", trainable=False)
        return EstimatorSpec(mode, loss=0.0, train_op=(later if get_or_create_global_step() else first)())

    return model_fn


W = VALUES["w"]


@pytest.mark.parametrize(
    ("first", "later", "said"),
    [
        (
            lambda: SGD.apply_gradients({"w": W}),
            lambda: ADAM.apply_gradients({"w": W}),
            "must return optimizers with the same configuration in every call; only their learning rates may change",
        ),
        (
            lambda: Momentum(learning_rate=0.1, momentum=0.9).apply_gradients({"w": W}),
            lambda: Momentum(learning_rate=0.1, momentum=0.8).apply_gradients({"w": W}),
            "must return optimizers with the same configuration in every call",
        ),
        (
            lambda: SGD.apply_gradients({"w": W}),
            lambda: [SGD.apply_gradients({"w": W}), SGD.apply_gradients({"b": 1.0})],
            "must return optimizers with the same configuration in every call",
        ),
        (
            lambda: SGD.apply_gradients({"w": W}),
            lambda: SGD.minimize(0.0),
            "must use either minimize or apply_gradients in every call, as in the first one",
        ),
        (
            lambda: [SGD.apply_gradients({"w": W}), ADAM.apply_gradients({"b": 1.0})],
            lambda: [SGD.apply_gradients({"b": 1.0}), ADAM.apply_gradients({"b": 1.0})],
            "train_op names 'b', which it did not train in the first call",
        ),
        (
            lambda: SGD.apply_gradients({"w": W}),
            lambda: SGD.apply_gradients({"fixed": 1.0}),
            "train_op names 'fixed', which it did not train in the first call",
        ),
        (
            lambda: SGD.apply_gradients({"w": W}),
            lambda: SGD.apply_gradients({"ww": W}),
            "gradient for the unknown variable 'ww'; did you mean 'w'",
        ),
        (
            lambda: SGD.apply_gradients({"w": W}),
            lambda: SGD.apply_gradients({"w": W[:2]}),
            r"the gradient of variable 'w' is float32\[2\], expected float32\[3\]",
        ),
        (
            lambda: SGD.apply_gradients({"w": W}),
            lambda: SGD.apply_gradients({"w": W.astype(object)}),
            r"the gradient of variable 'w' is object\[3\], expected float32\[3\]",
        ),
    ],
)
def test_a_later_call_may_not_differ_from_the_first(first, later, said):
    train = training(changing(first, later))
    values = {**VALUES, "fixed": np.zeros((), np.float32)}
    assert train(X, Y, values, 0).gradients.keys() <= {"w", "b"}
    with pytest.raises(ModelFnError, match=said):
        train(X, Y, values, 1)


def test_a_learning_rate_may_change_between_calls():
    rates = iter([0.1, 0.1, 0.2])
    model_fn = changing(*[lambda: GradientDescent(learning_rate=next(rates)).apply_gradients({"w": W})] * 2)
    train = training(model_fn)
    values = {**VALUES, "fixed": np.zeros((), np.float32)}
    assert [train(X, Y, values, n).learning_rates for n in (0, 1)] == [(0.1,), (0.2,)]
