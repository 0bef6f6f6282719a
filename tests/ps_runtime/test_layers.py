import numpy as np
import pytest

from psflow.ps_runtime.layers import dense, dense_backward, dense_input_gradient, relu, relu_backward

RNG = np.random.default_rng(6)
INPUTS, KERNEL, BIAS = RNG.normal(size=(5, 3)), RNG.normal(size=(3, 4)), RNG.normal(size=4)
PROBE = RNG.normal(size=(5, 4))
"""Gradient of ``sum(PROBE * outputs)`` with respect to the outputs."""


def test_dense_gradients_agree_with_central_differences(central_differences):
    kernel_gradient, bias_gradient = dense_backward(INPUTS, PROBE)
    inputs_gradient = dense_input_gradient(KERNEL, PROBE)
    cases = [
        (kernel_gradient, lambda kernel: np.sum(PROBE * dense(INPUTS, kernel, BIAS)), KERNEL),
        (bias_gradient, lambda bias: np.sum(PROBE * dense(INPUTS, KERNEL, bias)), BIAS),
        (inputs_gradient, lambda inputs: np.sum(PROBE * dense(inputs, KERNEL, BIAS)), INPUTS),
    ]
    for gradient, function, at in cases:
        np.testing.assert_allclose(gradient, central_differences(function, at), atol=1e-8)


def test_relu_gradient_agrees_with_central_differences(central_differences):
    inputs = np.where(np.abs(PROBE) < 0.01, 0.5, PROBE[::-1])
    gradient = relu_backward(relu(inputs), PROBE)
    np.testing.assert_allclose(gradient, central_differences(lambda x: np.sum(PROBE * relu(x)), inputs), atol=1e-8)
    assert (gradient == 0.0).any()
    assert (gradient != 0.0).any()


def test_relu_has_no_slope_at_zero():
    outputs = relu(np.array([-1.0, 0.0, 2.0]))
    assert outputs.tolist() == [0.0, 0.0, 2.0]
    assert relu_backward(outputs, np.full(3, 7.0)).tolist() == [0.0, 0.0, 7.0]


def test_relu_lets_nan_through():
    assert np.isnan(relu(np.array([np.nan]))).all()


def test_layers_keep_float32_and_their_arguments():
    arguments = [a.astype(np.float32) for a in (INPUTS, KERNEL, BIAS, PROBE)]
    before = [a.copy() for a in arguments]
    inputs, kernel, bias, probe = arguments
    outputs = dense(inputs, kernel, bias)
    results = [outputs, *dense_backward(inputs, probe), dense_input_gradient(kernel, probe)]
    results += [relu(outputs), relu_backward(relu(outputs), probe)]
    assert {r.dtype for r in results} == {np.dtype(np.float32)}
    assert all(np.array_equal(a, b) for a, b in zip(arguments, before, strict=True))


@pytest.mark.parametrize("batch", [0, 1])
def test_small_batches_have_shapes_too(batch):
    kernel_gradient, bias_gradient = dense_backward(INPUTS[:batch], PROBE[:batch])
    assert (kernel_gradient.shape, bias_gradient.shape) == ((3, 4), (4,))
    assert dense(INPUTS[:batch], KERNEL, BIAS).shape == (batch, 4)
