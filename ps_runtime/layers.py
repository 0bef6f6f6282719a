"""Implements layers of a network and their derivatives manually: few numpy calls, no needless temporaries.

All arrays of one call have one float dtype; the results have it too.

Named functions work in place, and their derivatives use their outputs. autograd differentiates functions of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ModelFnError, PsflowError, did_you_mean

__all__ = [
    "ActivationFn",
    "ActivationName",
    "FloatArray",
    "activated",
    "activation_faults",
    "dense",
    "dense_backward",
    "dense_input_gradient",
    "relu",
    "relu_backward",
]

FloatArray = NDArray[np.floating[Any]]


def dense(inputs: FloatArray, kernel: FloatArray, bias: FloatArray) -> FloatArray:
    """Return ``inputs @ kernel + bias``.

    Parameters
    ----------
    inputs : (batch, features)
        One row for each example.
    kernel : (features, units)
        Weights.
    bias : (units,)
        Added to each row.

    Returns
    -------
    (batch, units) array
        Newly allocated.
    """
    outputs: FloatArray = inputs @ kernel
    outputs += bias
    return outputs


def dense_backward(
    inputs: FloatArray, gradient: FloatArray, out: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return the gradients of `dense` with respect to its kernel and its bias.

    Parameters
    ----------
    inputs : (batch, features)
        What `dense` was given.
    gradient : (batch, units)
        Gradient of the loss with respect to what `dense` returned.
    out : (features, units), optional
        Where the gradient of the kernel goes, such as ``gradient_buffer("dense/kernel")``.

    Returns
    -------
    kernel_gradient : (features, units) array
        `out` if it was given.
    bias_gradient : (units,) array
        Newly allocated.
    """
    return np.matmul(inputs.T, gradient, out=out), np.add.reduce(gradient, axis=0)


def dense_input_gradient(kernel: FloatArray, gradient: FloatArray) -> FloatArray:
    """Return the gradient of `dense` with respect to its inputs; the first layer of a network does not need it.

    Parameters
    ----------
    kernel : (features, units)
        What `dense` was given.
    gradient : (batch, units)
        Gradient of the loss with respect to what `dense` returned.

    Returns
    -------
    (batch, features) array
        Gradient of the loss with respect to `inputs` of `dense`.
    """
    inputs_gradient: FloatArray = gradient @ kernel.T
    return inputs_gradient


def relu(inputs: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """Return ``max(inputs, 0)``, elementwise; NaN stays NaN. It is made in `out`, if given, which may be `inputs`.

    Examples
    --------
    >>> relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    outputs: FloatArray = np.maximum(inputs, 0.0, out=out)
    return outputs


def relu_backward(outputs: FloatArray, gradient: FloatArray) -> FloatArray:
    """Return the gradient of `relu` with respect to its inputs: `gradient` where `outputs` > 0, else 0.

    Parameters
    ----------
    outputs : array
        What `relu` returned.
    gradient : array of the same shape
        Gradient of the loss with respect to `outputs`.
    """
    inputs_gradient: FloatArray = gradient * (outputs > 0.0)
    return inputs_gradient


ActivationName = Literal[
    "relu", "relu6", "leaky_relu", "elu", "selu", "softplus", "softsign", "sigmoid", "tanh", "linear"
]
if TYPE_CHECKING:
    ActivationFn = ActivationName | Callable[[Any], Any] | None
else:
    ActivationFn = ActivationName | None  # what a configuration may have

Backward = Callable[[FloatArray], FloatArray]
"""Takes the gradient of the loss with respect to outputs, and returns that with respect to inputs."""

SELU_SCALE, SELU_ALPHA = 1.0507009873554804934, 1.6732632423543772848
LEAK = 0.2


class _Named(NamedTuple):
    """A function that may write into its inputs, and its slope as a function of its outputs."""

    apply: Callable[[FloatArray], FloatArray]
    slope: Callable[[FloatArray], Any]


def _elu(x: FloatArray) -> FloatArray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def _sigmoid(x: FloatArray) -> FloatArray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


NAMED: Mapping[str, _Named] = MappingProxyType(
    {
        "relu": _Named(lambda x: relu(x, out=x), lambda y: y > 0),
        "relu6": _Named(lambda x: np.clip(x, 0, 6, out=x), lambda y: (y > 0) & (y < 6)),
        "leaky_relu": _Named(lambda x: np.where(x > 0, x, LEAK * x), lambda y: np.where(y > 0, 1.0, LEAK)),
        "elu": _Named(_elu, lambda y: np.where(y > 0, 1.0, y + 1)),
        "selu": _Named(
            lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0))),
            lambda y: np.where(y > 0, SELU_SCALE, y + SELU_SCALE * SELU_ALPHA),
        ),
        "softplus": _Named(lambda x: np.logaddexp(x, 0), lambda y: -np.expm1(-y)),
        "softsign": _Named(lambda x: x / (1 + np.abs(x)), lambda y: (1 - np.abs(y)) ** 2),
        "sigmoid": _Named(_sigmoid, lambda y: y * (1 - y)),
        "tanh": _Named(lambda x: np.tanh(x, out=x), lambda y: 1 - y * y),
        "linear": _Named(lambda x: x, lambda y: 1),
    }
)
assert NAMED.keys() == set(get_args(ActivationName))


def activated(activation_fn: ActivationFn, inputs: FloatArray) -> tuple[FloatArray, Backward]:
    """Return the values of an activation function, and its derivative.

    Raises
    ------
    ModelFnError
        If a function of the user raises, or returns another shape.

    Examples
    --------
    >>> outputs, backward = activated("elu", np.array([[-1.0, 2.0]]))
    >>> outputs.round(3), backward(np.ones((1, 2))).round(3)
    (array([[-0.632,  2.   ]]), array([[0.368, 1.   ]]))
    """
    if callable(activation_fn):
        return _of_user(activation_fn, inputs)
    apply, slope = NAMED["linear" if activation_fn is None else activation_fn]
    outputs = np.asarray(apply(inputs), inputs.dtype)
    return outputs, lambda gradient: np.asarray(gradient * slope(outputs), gradient.dtype)


def activation_faults(activation_fn: Any, name: str) -> list[str]:
    """Describe the fault of an activation function: neither a name nor a differentiable function."""
    if activation_fn is None or (isinstance(activation_fn, str) and activation_fn in NAMED):
        return []
    if not callable(activation_fn):
        near = did_you_mean(activation_fn, NAMED) if isinstance(activation_fn, str) else ""
        return [f"{name} is {activation_fn!r}, expected a function or one of {', '.join(NAMED)}{near}"]
    probe = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    try:
        outputs, backward = _of_user(activation_fn, probe)
        backward(np.ones_like(outputs))
    except PsflowError as error:
        return [f"{name}: {error}"]
    if not np.allclose(outputs, activation_fn(probe), equal_nan=True):  # numpy takes a traced array for one object
        shown = getattr(activation_fn, "__name__", repr(activation_fn))
        fault = f"activation function {shown} returns other numbers in a second call, or calls plain numpy"
        return [f"{name}: {fault}; make it deterministic, and write it with autograd.numpy, or choose one by name"]
    return []


def _of_user(function: Callable[[Any], Any], inputs: FloatArray) -> tuple[FloatArray, Backward]:
    from autograd.core import VJPNode, backward_pass  # the import is slow
    from autograd.tracer import trace

    shown = getattr(function, "__name__", repr(function))
    try:
        found, end = trace(VJPNode.new_root(), function, inputs)
        if end is None:
            raise TypeError("its result does not depend on its argument, or went through plain numpy")
        outputs = np.asarray(found, inputs.dtype)
    except Exception as cause:
        fault = f"activation function {shown} cannot be differentiated, {type(cause).__name__}: {cause}"
        raise ModelFnError((f"{fault}; write it with autograd.numpy, or choose one by name",)) from cause
    if outputs.shape != inputs.shape:
        got = list(outputs.shape)
        raise ModelFnError((f"activation function {shown} gave the shape {got}, expected {list(inputs.shape)}",))
    return outputs, lambda gradient: np.asarray(backward_pass(gradient, end), gradient.dtype)
