"""Models that do not look at features: what always the same answer is worth, to hold other models against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.initializers import zeros
from psflow.ps_runtime.layers import FloatArray
from psflow.ps_runtime.model.canned.base import HeadSpec
from psflow.ps_runtime.model.canned.features import check_lifetimes
from psflow.ps_runtime.model.scope import get_variable
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Optimizer
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["baseline_model"]

BIAS = "baseline/bias"


def baseline_model(
    features: Any, labels: Any, mode: ModeKeys, params: Mapping[str, Any], input_schema: InputSchema
) -> EstimatorSpec:
    """Be the model_fn of models that do not look at features; `params` has its ``head`` and ``optimizer``."""
    asked: HeadSpec = params["head"]
    head = asked.reading(input_schema)
    check_lifetimes(input_schema)
    bias: FloatArray = get_variable(BIAS, (head.logits_dimension,), initializer=zeros)
    outputs = np.repeat(bias[np.newaxis], _num_rows(features), axis=0)

    def train(gradient: FloatArray) -> TrainOp:
        optimizer: Optimizer = params["optimizer"]
        return optimizer.apply_gradients({BIAS: gradient.sum(axis=0)})

    return head.create_estimator_spec(features, mode, outputs, labels, train)


def _num_rows(features: Any) -> int:
    if not isinstance(features, Mapping):
        return len(features)
    for array in features.values():
        return len(array)
    raise InputError(("expected at least one feature, got an empty mapping: it tells how many examples there are",))
