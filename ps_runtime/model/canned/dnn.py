"""Deep neural networks: dense layers with an activation function between them, with hand-written derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.feature_columns.transforming import Transformation
from psflow.ps_runtime.initializers import normal, variable_rng, zeros
from psflow.ps_runtime.layers import (
    ActivationFn,
    Backward,
    FloatArray,
    activated,
    dense,
    dense_backward,
    dense_input_gradient,
)
from psflow.ps_runtime.model.calls.gradients import gradient_buffer
from psflow.ps_runtime.model.calls.scope import current_scope, get_variable
from psflow.ps_runtime.model.canned.base import Head, HeadSpec
from psflow.ps_runtime.model.canned.column_inputs import Embedded, IdRows, deep_inputs, vectors_name
from psflow.ps_runtime.model.canned.features import Ids, check_lifetimes, check_no_lifetimes, one_hot, read_features
from psflow.ps_runtime.model.lookups import SparseGradient
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.specs.schema import InputSchema


def step_random(name: str, config: Any) -> np.random.Generator:
    """Return the random generator for one purpose of a training call.

    It depends only on the job's seed, `name`, the replica and the global_step of the call: a resumed job draws the same
    numbers, and replicas draw different ones.

    Raises
    ------
    ModelFnError
        Outside a model_fn.
    """
    scope = current_scope("random numbers")
    assert scope.seed is not None, "training calls have a seed"
    replica = None if config is None else config.global_id_in_cluster
    return variable_rng(scope.seed, f"{name}:{replica or 0}:{scope.global_step}")


@dataclass(frozen=True)
class HiddenUnits:
    """The activation function and the dropout of hidden layers."""

    activation_fn: ActivationFn = "relu"
    dropout: float = 0.0
    config: Any = None

    @classmethod
    def of(cls, activation_fn: ActivationFn, dropout: float | None, mode: ModeKeys, config: Any) -> HiddenUnits:
        """Return those of a call of model_fn: dropout applies only in training."""
        return cls(activation_fn, (dropout or 0.0) if mode == ModeKeys.TRAIN else 0.0, config)

    def __call__(self, layer: str, sums: FloatArray) -> tuple[FloatArray, Backward]:
        """Return the outputs of a layer, and the backward function of their gradient; see `activated`."""
        outputs, backward = activated(self.activation_fn, sums)
        if not self.dropout:
            return outputs, backward
        factors = self._factors(layer, outputs)
        return outputs * factors, _scaled(backward, factors)

    def _factors(self, layer: str, outputs: FloatArray) -> NDArray[Any]:
        drawn = step_random(f"{layer}/dropout", self.config).random(outputs.shape, np.float32)
        return (drawn >= self.dropout).astype(outputs.dtype) / (1 - self.dropout)


def _scaled(backward: Backward, factors: NDArray[Any]) -> Callable[[FloatArray], FloatArray]:
    return lambda gradient: backward(gradient * factors)


INPUT_LAYER = "dnn/input_layer"
"""Prefix of the names of embedding vectors."""


class Layer(NamedTuple):
    """A dense layer: `name` is the prefix of its variables, ``<name>/kernel`` and ``<name>/bias``."""

    name: str
    kernel: FloatArray
    bias: FloatArray


class ForwardPass(NamedTuple):
    """The inputs and outputs of the layers of a network."""

    activations: list[FloatArray]
    backward: list[Backward]

    @property
    def outputs(self) -> FloatArray:
        """Outputs of the last layer."""
        return self.activations[-1]


def forward(inputs: FloatArray, layers: Sequence[Layer], hidden: HiddenUnits) -> ForwardPass:
    """Return the inputs of each layer, and last the outputs of the network."""
    passed = ForwardPass([inputs], [])
    for layer in layers[:-1]:
        outputs, through = hidden(layer.name, dense(passed.outputs, layer.kernel, layer.bias))
        passed.activations.append(outputs)
        passed.backward.append(through)
    passed.activations.append(dense(passed.outputs, layers[-1].kernel, layers[-1].bias))
    return passed


def backward(
    passed: ForwardPass,
    layers: Sequence[Layer],
    gradient: FloatArray,
    buffer_of: Callable[[str], FloatArray | None] = lambda name: None,
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Return the gradient of each variable, by name, and that of the sums of the first layer."""
    gradients: dict[str, FloatArray] = {}
    for index in reversed(range(len(layers))):
        kernel, bias, inputs = f"{layers[index].name}/kernel", f"{layers[index].name}/bias", passed.activations[index]
        gradients[kernel], gradients[bias] = dense_backward(inputs, gradient, buffer_of(kernel))
        if index:
            gradient = passed.backward[index - 1](dense_input_gradient(layers[index].kernel, gradient))
    return gradients, gradient


def dnn_model(
    features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], config: Any, input_schema: InputSchema
) -> EstimatorSpec:
    """Build deep networks; a model_fn.

    `params` has the ``head``, ``hidden_units``, ``activation_fn``, ``dropout`` and, for training, the ``optimizer``.
    """
    head: HeadSpec = params["head"]
    hidden = HiddenUnits.of(params["activation_fn"], params["dropout"], mode, config)
    return _dnn(head.reading(input_schema), hidden, features, labels, mode, params, input_schema)


@dataclass(frozen=True, slots=True)
class DeepPart:
    """The forward pass of a deep network for a batch."""

    inputs: _Inputs
    layers: Sequence[Layer]
    passed: ForwardPass

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, FloatArray | Ids | Embedded],
        hidden_units: Sequence[int],
        hidden: HiddenUnits,
        num_outputs: int,
    ) -> Self:
        """Compute the outputs with the current variables."""
        read = _side_by_side(inputs)
        layers = _layers(read.matrix.shape[1], hidden_units, num_outputs)
        return cls(read, layers, forward(read.matrix, layers, hidden))

    @property
    def outputs(self) -> FloatArray:
        """Outputs of the last layer, ``(batch, num_outputs)``."""
        return self.passed.outputs

    def gradients(self, gradient: FloatArray) -> dict[str, FloatArray | SparseGradient]:
        """Return the gradient of each variable and table, given that of the outputs."""
        gradients: dict[str, FloatArray | SparseGradient] = {}
        of_layers, of_first = backward(self.passed, self.layers, gradient, gradient_buffer)
        for rows, looked_up in self.inputs.embedded.items():
            if rows.trainable:
                kernel = self.layers[0].kernel
                parts = [(ids, dense_input_gradient(kernel[columns], of_first)) for ids, columns in looked_up]
                gradients[rows.name] = rows.gradient(parts)
        return gradients | of_layers


def _dnn(
    head: Head,
    hidden: HiddenUnits,
    features: Any,
    labels: Any,
    mode: ModeKeys,
    params: Mapping[str, Any],
    schema: InputSchema,
) -> EstimatorSpec:
    columns = params.get("feature_columns")
    inputs: Mapping[str, FloatArray | Ids | Embedded]
    if columns is None:
        read = read_features(features, schema)
        check_lifetimes(schema, read)
        inputs = read
    else:
        check_no_lifetimes(schema)
        inputs = deep_inputs(Transformation(features), columns, INPUT_LAYER)
    part = DeepPart.of(inputs, params["hidden_units"], hidden, head.logits_dimension)

    def train(gradient: FloatArray) -> TrainOp:
        optimizer: Optimizer = params["optimizer"]
        return optimizer.apply_gradients(part.gradients(gradient))

    return head.create_estimator_spec(features, mode, part.outputs, labels, train)


class _Inputs(NamedTuple):
    """The inputs of the first layer, with the ids and the columns of its embedding vectors."""

    matrix: FloatArray
    embedded: Mapping[IdRows, Sequence[tuple[Ids, slice]]]


def _side_by_side(inputs: Mapping[str, FloatArray | Ids | Embedded]) -> _Inputs:
    """Concatenate numbers, embedding vectors and one-hot ids."""
    blocks: list[FloatArray] = []
    embedded: dict[IdRows, list[tuple[Ids, slice]]] = {}
    width = 0
    for feature, given in inputs.items():
        values = _with_vectors(feature, given) if isinstance(given, Ids) and given.embedding else given
        if isinstance(values, Embedded):
            blocks.append(values.rows.look_up(values.ids))
            embedded.setdefault(values.rows, []).append((values.ids, slice(width, width + values.rows.dim)))
        elif isinstance(values, Ids):
            blocks.append(one_hot(values, feature))
        else:
            blocks.append(values)
        width += blocks[-1].shape[1]
    return _Inputs(blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1), embedded)


def _with_vectors(feature: str, ids: Ids) -> Embedded:
    name = vectors_name(INPUT_LAYER, f"{feature}_embedding")
    first = normal(stddev=ids.embedding**-0.5)
    return Embedded(IdRows(name, ids.num_ids, ids.embedding, first, lifetime=ids.lifetime), ids)


def _layers(num_features: int, hidden_units: Sequence[int], num_outputs: int) -> list[Layer]:
    names = [f"dnn/hiddenlayer_{index}" for index in range(len(hidden_units))] + ["dnn/logits"]
    widths = [num_features, *hidden_units, num_outputs]
    return [
        Layer(
            name,
            get_variable(f"{name}/kernel", (widths[index], widths[index + 1])),
            get_variable(f"{name}/bias", (widths[index + 1],), initializer=zeros),
        )
        for index, name in enumerate(names)
    ]
