"""Linear models: a weighted sum of numbers plus a weight for each id, with hand-written derivatives."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.feature_columns.transforming import Transformation
from psflow.ps_runtime.initializers import zeros
from psflow.ps_runtime.layers import FloatArray
from psflow.ps_runtime.model.calls.gradients import gradient_buffer
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.canned.base import Head, HeadSpec
from psflow.ps_runtime.model.canned.column_inputs import IdRows, linear_inputs
from psflow.ps_runtime.model.canned.features import Ids, check_lifetimes, check_no_lifetimes, read_features
from psflow.ps_runtime.model.lookups import SparseGradient
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Ftrl, Optimizer
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.specs.schema import MATRIX, InputSchema

BASELINE_BIAS = "baseline/bias"


def baseline_model(
    features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], input_schema: InputSchema
) -> EstimatorSpec:
    """Build models that ignore the features; a model_fn. `params` has the ``head`` and the ``optimizer``."""
    asked: HeadSpec = params["head"]
    head = asked.reading(input_schema)
    check_lifetimes(input_schema)
    bias: FloatArray = get_variable(BASELINE_BIAS, (head.logits_dimension,), initializer=zeros)
    outputs = np.repeat(bias[np.newaxis], _num_rows(features), axis=0)

    def train(gradient: FloatArray) -> TrainOp:
        optimizer: Optimizer = params["optimizer"]
        return optimizer.apply_gradients({BASELINE_BIAS: gradient.sum(axis=0)})

    return head.create_estimator_spec(features, mode, outputs, labels, train)


def _num_rows(features: Any) -> int:
    if not isinstance(features, Mapping):
        return len(features)
    for array in features.values():
        return len(array)
    raise InputError(("expected at least one feature, got an empty mapping: a feature sets the number of examples",))


LINEAR_LAYER = "linear/linear_model"
BIAS = f"{LINEAR_LAYER}/bias_weights"
LARGEST_RATE = 0.2


def linear_model(
    features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], input_schema: InputSchema
) -> EstimatorSpec:
    """Build linear models; a model_fn. `params` has the ``head`` and, for training, the ``optimizer``."""
    head: HeadSpec = params["head"]
    return _linear(head.reading(input_schema), features, labels, mode, params, input_schema)


def default_optimizer(columns: int, largest_rate: float = LARGEST_RATE) -> Ftrl:
    """Return Ftrl with the learning rate ``min(largest_rate, 1 / sqrt(columns))``.

    Examples
    --------
    >>> default_optimizer(1).learning_rate, default_optimizer(100).learning_rate
    (0.2, 0.1)
    """
    return Ftrl(learning_rate=min(largest_rate, 1 / math.sqrt(columns)))


def num_columns(schema: InputSchema, names: Collection[str]) -> int:
    """Return the number of columns of some features: one each, but all of a table that arrives as a matrix.

    Examples
    --------
    >>> from psflow.ps_runtime.specs.schema import ArraySpec
    >>> matrix = ArraySpec("features", "float32", (100,))
    >>> num_columns(InputSchema((matrix,)), ["features"])
    1
    >>> names = tuple(f"column_{number}" for number in range(100))
    >>> num_columns(InputSchema((matrix,), columns=names), ["features"])
    100
    """
    in_matrix = len(schema.columns)
    return sum(in_matrix if in_matrix and spec.name == MATRIX else 1 for spec in schema.features if spec.name in names)


@dataclass(frozen=True, slots=True)
class LinearPart:
    """The outputs of a linear model for a batch."""

    inputs: Mapping[str, FloatArray | Ids]
    outputs: FloatArray

    @classmethod
    def of(cls, inputs: Mapping[str, FloatArray | Ids], num_outputs: int) -> Self:
        """Compute the outputs with the current variables."""
        bias: FloatArray = get_variable(BIAS, (num_outputs,), initializer=zeros)
        return cls(inputs, sum((_weighted(name, values, num_outputs) for name, values in inputs.items()), bias))

    def gradients(self, gradient: FloatArray) -> dict[str, FloatArray | SparseGradient]:
        """Return the gradient of each variable and table, given that of the outputs."""
        gradients: dict[str, FloatArray | SparseGradient] = {BIAS: gradient.sum(axis=0)}
        for feature, values in self.inputs.items():
            name = _weights_name(feature)
            if isinstance(values, Ids):
                gradients[name] = _rows(name, values, gradient.shape[1]).gradient([(values, gradient)])
            else:
                gradients[name] = np.matmul(values.T, gradient, out=gradient_buffer(name))
        return gradients


def _linear(
    head: Head, features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], schema: InputSchema
) -> EstimatorSpec:
    columns = params.get("feature_columns")
    if columns is None:
        inputs: Mapping[str, FloatArray | Ids] = read_features(features, schema, params["sparse_combiner"])
        check_lifetimes(schema, inputs)
    else:
        check_no_lifetimes(schema)
        inputs = linear_inputs(Transformation(features), columns, params["sparse_combiner"], LINEAR_LAYER)
    part = LinearPart.of(inputs, head.logits_dimension)

    def train(gradient: FloatArray) -> TrainOp:
        optimizer: Optimizer = params["optimizer"] or default_optimizer(
            num_columns(schema, inputs) if columns is None else len(columns)
        )
        return optimizer.apply_gradients(part.gradients(gradient))

    return head.create_estimator_spec(features, mode, part.outputs, labels, train)


def _weighted(feature: str, values: FloatArray | Ids, num_outputs: int) -> FloatArray:
    """Return the contribution of one feature to the outputs, ``(batch, num_outputs)``."""
    name = _weights_name(feature)
    if isinstance(values, Ids):
        weights_of_ids: FloatArray = _rows(name, values, num_outputs).look_up(values)
        return weights_of_ids
    weighted: FloatArray = values @ get_variable(name, (values.shape[1], num_outputs), initializer=zeros)
    return weighted


def _rows(name: str, ids: Ids, num_outputs: int) -> IdRows:
    return IdRows(name, ids.num_ids, num_outputs, zeros, lifetime=ids.lifetime)


def _weights_name(feature: str) -> str:
    return f"{LINEAR_LAYER}/{feature}/weights" if feature else f"{LINEAR_LAYER}/weights"
