"""Wide and deep models: the sum of a linear model and a deep network, each part with its own optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psflow.ps_runtime.errors import InputError, did_you_mean
from psflow.ps_runtime.feature_columns.choosing import has_columns
from psflow.ps_runtime.feature_columns.transforming import Transformation
from psflow.ps_runtime.layers import FloatArray
from psflow.ps_runtime.model.canned.base import Head, HeadSpec
from psflow.ps_runtime.model.canned.column_inputs import Embedded, deep_inputs, linear_inputs
from psflow.ps_runtime.model.canned.dnn import INPUT_LAYER, DeepPart, HiddenUnits
from psflow.ps_runtime.model.canned.features import Ids, check_lifetimes, check_no_lifetimes, read_features
from psflow.ps_runtime.model.canned.linear import LINEAR_LAYER, LinearPart, default_optimizer, num_columns
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.specs.schema import InputSchema

LARGEST_RATE = 0.005
"""Upper limit of the linear part's default learning rate; that of a linear model is larger, as in TensorFlow 2.15."""


def dnn_linear_combined_model(
    features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], config: Any, input_schema: InputSchema
) -> EstimatorSpec:
    """Build wide and deep models; a model_fn. `params` has the ``head`` and the hyper-parameters of both parts."""
    head: HeadSpec = params["head"]
    hidden = HiddenUnits.of(params["dnn_activation_fn"], params["dnn_dropout"], mode, config)
    return _combined(head.reading(input_schema), hidden, features, labels, mode, params, input_schema)


def _combined(
    head: Head,
    hidden: HiddenUnits,
    features: Any,
    labels: Any,
    mode: ModeKeys,
    params: Mapping[str, Any],
    schema: InputSchema,
) -> EstimatorSpec:
    linear_columns, dnn_columns = params["linear_feature_columns"], params["dnn_feature_columns"]
    linear_read: Mapping[str, FloatArray | Ids]
    deep_read: Mapping[str, FloatArray | Ids | Embedded]
    if has_columns(linear_columns):
        check_no_lifetimes(schema)
        transformation = Transformation(features)  # shared by the columns of both parts
        linear_read = linear_inputs(transformation, linear_columns, params["linear_sparse_combiner"], LINEAR_LAYER)
        deep_read = deep_inputs(transformation, dnn_columns, INPUT_LAYER)
    else:
        combiner = params["linear_sparse_combiner"]
        for_linear = read_features(_asked(features, linear_columns, schema), schema, combiner)
        linear_read = _chosen(for_linear, linear_columns, "linear_feature_columns")
        for_deep = read_features(_asked(features, dnn_columns, schema), schema)
        deep_named = _chosen(for_deep, dnn_columns, "dnn_feature_columns")
        check_lifetimes(schema, linear_read, deep_named)
        deep_read = deep_named
    wide = LinearPart.of(linear_read, head.logits_dimension)
    deep = DeepPart.of(deep_read, params["dnn_hidden_units"], hidden, head.logits_dimension)

    def train(gradient: FloatArray) -> tuple[TrainOp, TrainOp]:
        columns = len(linear_read) if has_columns(linear_columns) else num_columns(schema, linear_read)
        of_linear: Optimizer = params["linear_optimizer"] or default_optimizer(columns, LARGEST_RATE)
        of_dnn: Optimizer = params["dnn_optimizer"]
        return of_linear.apply_gradients(wide.gradients(gradient)), of_dnn.apply_gradients(deep.gradients(gradient))

    return head.create_estimator_spec(features, mode, wide.outputs + deep.outputs, labels, train)


def _asked(features: Any, names: Sequence[str] | None, schema: InputSchema) -> Any:
    """Return the features of `names`, with the weights of their ids; all features, if some are missing."""
    if names is None or not isinstance(features, Mapping) or any(name not in features for name in names):
        return features
    weights = [spec.weights for spec in schema.features if spec.weights and spec.name in names]
    return {name: features[name] for name in (*names, *weights)}


def _chosen(
    inputs: Mapping[str, FloatArray | Ids], names: Sequence[str] | None, key: str
) -> Mapping[str, FloatArray | Ids]:
    """Return the features that a part reads, sorted by name: all, if none is named."""
    if names is None:
        return inputs
    if unknown := [name for name in names if name not in inputs]:
        raise InputError(
            tuple(f"{key} names {name!r}, which is not a feature: {_features_are(inputs, name)}" for name in unknown)
        )
    return {name: inputs[name] for name in sorted(names)}


def _features_are(inputs: Mapping[str, object], wanted: str) -> str:
    if list(inputs) == [""]:
        return "the features are one array, which has no name; leave the names out, so that both parts read it"
    return f"the features are {', '.join(map(repr, inputs))}{did_you_mean(wanted, inputs)}"
