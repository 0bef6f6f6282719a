"""Layers of a network and their derivatives, written by hand: few numpy calls, no needless temporaries.

All arrays of one call have one float dtype; the results have it too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FloatArray",
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
