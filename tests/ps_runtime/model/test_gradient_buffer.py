"""Memory for gradients, as a model_fn asks for it."""

from __future__ import annotations

import numpy as np
import pytest

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.initializers import ones
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.gradients import GradientFn, gradient_buffer
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent

X = np.float32([[1, 2], [3, 4]])


def decay(features, mode):
    w = get_variable("w", (2, 3), initializer=ones)
    get_variable("fixed", (2,), trainable=False)
    gradient = np.multiply(w, 0.5, out=gradient_buffer("w"))
    return EstimatorSpec(
        mode, loss=w.mean(), train_op=GradientDescent(learning_rate=0.1).apply_gradients({"w": gradient})
    )


@pytest.fixture
def gradient_fn():
    caller = ModelCaller(decay, {}, None)
    return GradientFn(caller, caller.build(X, None, ModeKeys.TRAIN, seed=1))


def variables():
    return {"w": np.full((2, 3), 2.0, np.float32), "fixed": np.zeros(2, np.float32)}


def test_a_gradient_is_made_where_it_goes(gradient_fn):
    room = np.zeros((2, 3), np.float32)
    result = gradient_fn(X, None, variables(), 0, buffers=lambda: {"w": room})
    assert result.gradients["w"] is room
    assert (room == 1.0).all()


@pytest.mark.parametrize("buffers", [None, dict])
def test_without_such_a_place_it_is_new_memory(gradient_fn, buffers):
    first, second = (gradient_fn(X, None, variables(), 0, buffers=buffers).gradients["w"] for _ in range(2))
    assert (first == 1.0).all()
    assert first.dtype == np.float32
    assert not np.shares_memory(first, second)


def test_outside_a_model_fn_there_is_none():
    with pytest.raises(ModelFnError, match="gradient_buffer works only inside a model_fn"):
        gradient_buffer("w")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v", r"gradient_buffer: 'v' is not a trainable variable of this model"),
        ("ww", r"'ww' is not a trainable variable of this model.*'w'"),
        ("fixed", r"'fixed' is not a trainable variable"),
    ],
)
def test_only_trainable_variables_have_one(gradient_fn, name, words):
    def model_fn(features, mode):
        spec = decay(features, mode)
        gradient_buffer(name)
        return spec

    with pytest.raises(ModelFnError, match=words):
        ModelCaller(model_fn, {}, None).build(X, None, ModeKeys.TRAIN, seed=1)
    gradient_fn._caller.model_fn = model_fn
    with pytest.raises(ModelFnError, match=words):
        gradient_fn(X, None, variables(), 0)


def test_one_is_given_once(gradient_fn):
    def model_fn(features, mode):
        spec = decay(features, mode)
        gradient_buffer("w")
        return spec

    gradient_fn._caller.model_fn = model_fn
    with pytest.raises(ModelFnError, match=r"gradient_buffer\('w'\) was called twice in one call of model_fn"):
        gradient_fn(X, None, variables(), 0)
