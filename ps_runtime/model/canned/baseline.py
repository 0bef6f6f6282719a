"""Models that do not look at features: what always the same answer is worth, to hold other models against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.initializers import zeros
from psflow.ps_runtime.layers import FloatArray
from psflow.ps_runtime.model.canned.base import Head, spec_of_head
from psflow.ps_runtime.model.canned.features import check_lifetimes, read_weights
from psflow.ps_runtime.model.canned.head import ClassifierHead
from psflow.ps_runtime.model.canned.regressor_head import RegressorHead
from psflow.ps_runtime.model.scope import get_variable
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["baseline_classifier", "baseline_regressor"]

BIAS = "baseline/bias"


def baseline_classifier(
    features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], input_schema: InputSchema
) -> EstimatorSpec:
    """Be the model_fn of `BaselineClassifier`; `params` has its ``n_classes`` and ``optimizer``."""
    head = ClassifierHead.reading(params["n_classes"], input_schema)
    return _baseline(head, features, labels, mode, params, input_schema)


def baseline_regressor(
    features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], input_schema: InputSchema
) -> EstimatorSpec:
    """Be the model_fn of `BaselineRegressor`; `params` has its ``label_dimension`` and ``optimizer``."""
    head = RegressorHead.reading(params["label_dimension"], input_schema)
    return _baseline(head, features, labels, mode, params, input_schema)


def _baseline(
    head: Head, features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], schema: InputSchema
) -> EstimatorSpec:
    check_lifetimes(schema)
    bias: FloatArray = get_variable(BIAS, (head.num_outputs,), initializer=zeros)
    outputs = np.repeat(bias[np.newaxis], _num_rows(features), axis=0)

    def train(gradient: FloatArray) -> TrainOp:
        optimizer: Optimizer = params["optimizer"]
        return optimizer.apply_gradients({BIAS: gradient.sum(axis=0)})

    weights = None if mode == ModeKeys.PREDICT else read_weights(features, schema)
    return spec_of_head(head, mode, labels, outputs, weights, train)


def _num_rows(features: Any) -> int:
    if not isinstance(features, Mapping):
        return len(features)
    for array in features.values():
        return len(array)
    raise InputError(("expected at least one feature, got an empty mapping: it tells how many examples there are",))
