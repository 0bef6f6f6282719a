"""Activation functions by name and as functions of the user."""

import functools

import autograd.numpy as anp
import numpy as np
import pytest

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.layers import NAMED, activated, activation_faults

POINTS = np.array([[-2.0, -0.3, 0.4], [1.5, 5.0, -6.0]])


def swish(x):
    return x / (1 + anp.exp(-x))


@pytest.mark.parametrize("activation_fn", [*NAMED, None, swish, np.tanh, functools.partial(anp.power, 2.0)])
def test_the_way_back_agrees_with_central_differences(activation_fn, central_differences):
    weights = np.array([[1.0, -2.0, 0.5], [3.0, 1.0, -1.0]])
    _, backward = activated(activation_fn, POINTS.copy())
    slopes = central_differences(lambda x: (weights * activated(activation_fn, x.copy())[0]).sum(), POINTS)
    np.testing.assert_allclose(backward(weights), slopes, atol=1e-7)


def test_functions_of_the_user_keep_the_dtype_and_may_mix_units():
    def softmax(x):
        shares = anp.exp(x)
        return shares / anp.sum(shares, axis=1, keepdims=True)

    outputs, backward = activated(softmax, POINTS.astype(np.float32))
    np.testing.assert_allclose(outputs.sum(axis=1), 1, rtol=1e-6)
    assert outputs.dtype == backward(outputs).dtype == np.float32
    assert activated(np.tanh, POINTS)[0].tolist() == np.tanh(POINTS).tolist()


@pytest.mark.filterwarnings("ignore:Output seems independent of input")
@pytest.mark.parametrize(
    ("activation_fn", "words"),
    [
        ("rleu", "activation_fn is 'rleu', expected a function or one of relu, .*did you mean 'relu'"),
        (3, "activation_fn is 3, expected a function or one of"),
        (lambda x: x.sum(axis=1), r"gave the shape \[2\], expected \[2, 3\]"),
        (
            lambda x: np.where(x > 0, x, 0 * x),
            "(cannot be differentiated|calls plain numpy).*write it with autograd.numpy",
        ),
        (
            lambda x: x * np.random.default_rng().uniform(),
            "returns other numbers in a second call, .*make it deterministic",
        ),
        (lambda x: np.ones((2, 3)), "cannot be differentiated, .*does not depend on its argument"),
        (np.add, "cannot be differentiated"),
    ],
)
def test_what_is_no_activation_function_is_told(activation_fn, words):
    [fault] = activation_faults(activation_fn, "activation_fn")
    with pytest.raises(ValueError, match=words):
        raise ValueError(fault)


def test_what_is_one_has_no_faults():
    for activation_fn in (*NAMED, None, swish, np.tanh):
        assert activation_faults(activation_fn, "activation_fn") == []


def test_a_function_that_fails_in_training_is_named():
    def picky(x):
        if len(x) > 2:
            raise KeyError("long")
        return x

    with pytest.raises(ModelFnError, match="activation function picky cannot be differentiated, KeyError: 'long'"):
        activated(picky, np.ones((3, 1)))
