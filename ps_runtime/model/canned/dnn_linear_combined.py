"""Wide and deep: the outputs of a linear model and of a deep network added up, each part with its own optimizer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from psflow.ps_runtime.errors import InputError, did_you_mean
from psflow.ps_runtime.layers import FloatArray
from psflow.ps_runtime.model.canned.base import Head, spec_of_head
from psflow.ps_runtime.model.canned.dnn import DeepPart
from psflow.ps_runtime.model.canned.features import Ids, check_lifetimes, read_features, read_weights
from psflow.ps_runtime.model.canned.head import ClassifierHead
from psflow.ps_runtime.model.canned.linear import LinearPart, num_columns
from psflow.ps_runtime.model.canned.regressor_head import RegressorHead
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Ftrl, Optimizer
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["dnn_linear_combined_classifier", "dnn_linear_combined_regressor"]

LARGEST_RATE = 0.005
"""Of the linear part, by default: smaller than that of a linear model alone, as in TensorFlow 2.15."""


def dnn_linear_combined_classifier(
    features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], input_schema: InputSchema
) -> EstimatorSpec:
    """Be the model_fn of `DNNLinearCombinedClassifier`; `params` has its hyper-parameters."""
    head = ClassifierHead.reading(params["n_classes"], input_schema)
    return _combined(head, features, labels, mode, params, input_schema)


def dnn_linear_combined_regressor(
    features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], input_schema: InputSchema
) -> EstimatorSpec:
    """Be the model_fn of `DNNLinearCombinedRegressor`; `params` has its hyper-parameters."""
    head = RegressorHead.reading(params["label_dimension"], input_schema)
    return _combined(head, features, labels, mode, params, input_schema)


def _combined(
    head: Head, features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], schema: InputSchema
) -> EstimatorSpec:
    inputs = read_features(features, schema)
    of_wide, of_deep = (_chosen(inputs, params, f"{part}_feature_columns") for part in ("linear", "dnn"))
    check_lifetimes(schema, of_wide, of_deep)
    wide = LinearPart.of(of_wide, head.num_outputs)
    deep = DeepPart.of(of_deep, params["dnn_hidden_units"], head.num_outputs)

    def train(gradient: FloatArray) -> tuple[TrainOp, TrainOp]:
        of_linear: Optimizer = params["linear_optimizer"] or Ftrl(
            learning_rate=min(LARGEST_RATE, 1 / math.sqrt(num_columns(schema, wide.inputs)))
        )
        of_dnn: Optimizer = params["dnn_optimizer"]
        return of_linear.apply_gradients(wide.gradients(gradient)), of_dnn.apply_gradients(deep.gradients(gradient))

    weights = None if mode == ModeKeys.PREDICT else read_weights(features, schema)
    return spec_of_head(head, mode, labels, wide.outputs + deep.outputs, weights, train)


def _chosen(
    inputs: Mapping[str, FloatArray | Ids], params: Mapping[str, Any], key: str
) -> Mapping[str, FloatArray | Ids]:
    """Return the features that a part reads, in the sorted order of their names: all, if none is named."""
    names: Sequence[str] | None = params[key]
    if names is None:
        return inputs
    if unknown := [name for name in names if name not in inputs]:
        raise InputError(
            tuple(f"{key} names {name!r}, which is no feature: {_features_are(inputs, name)}" for name in unknown)
        )
    return {name: inputs[name] for name in sorted(names)}


def _features_are(inputs: Mapping[str, object], wanted: str) -> str:
    if list(inputs) == [""]:
        return "the features are one array, which has no name; leave the names out, and both parts read it"
    return f"the features are {', '.join(map(repr, inputs))}{did_you_mean(wanted, inputs)}"
