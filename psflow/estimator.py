"""The names that TensorFlow has in ``tf.estimator``, for a program that comes from there with ``import psflow as tf``.

Each is that of `psflow` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psflow

if TYPE_CHECKING:
    from psflow import (
        BaselineClassifier,
        BaselineRegressor,
        BestExporter,
        DNNClassifier,
        DNNLinearCombinedClassifier,
        DNNLinearCombinedRegressor,
        DNNRegressor,
        Estimator,
        EstimatorSpec,
        EvalSpec,
        FinalExporter,
        LatestExporter,
        LinearClassifier,
        LinearRegressor,
        ModeKeys,
        RunConfig,
        SessionRunHook,
        TrainSpec,
        VocabInfo,
        WarmStartSettings,
        export,
        train_and_evaluate,
    )

__all__ = [
    "BaselineClassifier",
    "BaselineRegressor",
    "BestExporter",
    "DNNClassifier",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "FinalExporter",
    "LatestExporter",
    "LinearClassifier",
    "LinearRegressor",
    "ModeKeys",
    "RunConfig",
    "SessionRunHook",
    "TrainSpec",
    "VocabInfo",
    "WarmStartSettings",
    "export",
    "train_and_evaluate",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(psflow, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
