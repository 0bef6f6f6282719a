"""The estimators that bring their own model_fn, by the names that configurations have for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from psflow.ps_runtime.estimator.baseline_classifier import BaselineClassifier
from psflow.ps_runtime.estimator.baseline_regressor import BaselineRegressor
from psflow.ps_runtime.estimator.dnn_classifier import DNNClassifier
from psflow.ps_runtime.estimator.dnn_linear_combined_classifier import DNNLinearCombinedClassifier
from psflow.ps_runtime.estimator.dnn_linear_combined_regressor import DNNLinearCombinedRegressor
from psflow.ps_runtime.estimator.dnn_regressor import DNNRegressor
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.linear_classifier import LinearClassifier
from psflow.ps_runtime.estimator.linear_regressor import LinearRegressor

__all__ = ["CANNED"]

CANNED: Mapping[str, type[Estimator]] = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            BaselineClassifier,
            BaselineRegressor,
            DNNClassifier,
            DNNLinearCombinedClassifier,
            DNNLinearCombinedRegressor,
            DNNRegressor,
            LinearClassifier,
            LinearRegressor,
        )
    }
)
"""Each takes its hyper-parameters, ``model_dir`` and ``config`` by name."""
