"""A deep neural network that classifies: dense layers with relu between them, their derivatives written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from psflow.ps_runtime.initializers import zeros
from psflow.ps_runtime.layers import FloatArray, dense, dense_backward, dense_input_gradient, relu, relu_backward
from psflow.ps_runtime.model.canned.features import feature_matrix
from psflow.ps_runtime.model.canned.head import ClassifierHead
from psflow.ps_runtime.model.gradient_buffer import gradient_buffer
from psflow.ps_runtime.model.scope import get_variable
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys

__all__ = ["Layer", "backward", "dnn_classifier", "forward"]


class Layer(NamedTuple):
    """A dense layer: `name` is the prefix of its variables, ``<name>/kernel`` and ``<name>/bias``."""

    name: str
    kernel: FloatArray
    bias: FloatArray


def forward(inputs: FloatArray, layers: Sequence[Layer]) -> list[FloatArray]:
    """Return what each layer reads, and last the logits.

    Parameters
    ----------
    inputs : (batch, features)
        One row for each example.
    layers : sequence of Layer
        The last one gives the logits; relu follows each of the others.

    Returns
    -------
    list of (batch, units) arrays, one more than there are layers
        `inputs`, then the output of each layer, after relu where that follows.
    """
    activations = [inputs]
    for layer in layers[:-1]:
        activations.append(relu(dense(activations[-1], layer.kernel, layer.bias)))
    activations.append(dense(activations[-1], layers[-1].kernel, layers[-1].bias))
    return activations


def backward(
    activations: Sequence[FloatArray],
    layers: Sequence[Layer],
    gradient: FloatArray,
    buffer_of: Callable[[str], FloatArray | None] = lambda name: None,
) -> dict[str, FloatArray]:
    """Return the gradient of each variable, by name.

    Parameters
    ----------
    activations : sequence of array
        From `forward`.
    layers : sequence of Layer
        As `forward` was given.
    gradient : (batch, n_classes)
        Gradient of the loss with respect to the logits.
    buffer_of : callable
        Returns where the gradient of a kernel may be made, or None: in new memory.
    """
    gradients: dict[str, FloatArray] = {}
    for index in reversed(range(len(layers))):
        kernel, bias, inputs = f"{layers[index].name}/kernel", f"{layers[index].name}/bias", activations[index]
        gradients[kernel], gradients[bias] = dense_backward(inputs, gradient, buffer_of(kernel))
        if index:
            gradient = relu_backward(inputs, dense_input_gradient(layers[index].kernel, gradient))
    return gradients


def dnn_classifier(features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any]) -> EstimatorSpec:
    """Be the model_fn of `DNNClassifier`.

    `params` has its ``hidden_units``, ``n_classes`` and, to train, ``optimizer``. Predictions are computed in EVAL and
    PREDICT, where somebody reads them.
    """
    head = ClassifierHead(params["n_classes"])
    inputs = feature_matrix(features)
    layers = _layers(inputs.shape[1], params["hidden_units"], head.n_classes)
    activations = forward(inputs, layers)
    logits = activations[-1]
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=head.predictions(logits))
    loss, gradient = head.loss(labels, logits)
    if mode == ModeKeys.EVAL:
        predictions = head.predictions(logits)
        measured = head.metrics(labels, predictions, loss)
        return EstimatorSpec(mode, predictions=predictions, loss=loss, eval_metric_ops=measured)
    gradients = backward(activations, layers, gradient, gradient_buffer)
    return EstimatorSpec(mode, loss=loss, train_op=params["optimizer"].apply_gradients(gradients))


def _layers(num_features: int, hidden_units: Sequence[int], n_classes: int) -> list[Layer]:
    names = [f"dnn/hiddenlayer_{index}" for index in range(len(hidden_units))] + ["dnn/logits"]
    widths = [num_features, *hidden_units, n_classes]
    return [
        Layer(
            name,
            get_variable(f"{name}/kernel", (widths[index], widths[index + 1])),
            get_variable(f"{name}/bias", (widths[index + 1],), initializer=zeros),
        )
        for index, name in enumerate(names)
    ]
