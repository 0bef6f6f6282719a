"""Those names of ``tf.estimator`` that psflow has, for a program that comes from there with ``import psflow as tf``.

Each is that of `psflow` itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psflow

if TYPE_CHECKING:
    from psflow import (
        BaselineClassifier,
        BaselineEstimator,
        BaselineRegressor,
        BestExporter,
        BinaryClassHead,
        CheckpointSaverHook,
        CheckpointSaverListener,
        DNNClassifier,
        DNNEstimator,
        DNNLinearCombinedClassifier,
        DNNLinearCombinedEstimator,
        DNNLinearCombinedRegressor,
        DNNRegressor,
        Estimator,
        EstimatorSpec,
        EvalSpec,
        FinalExporter,
        FinalOpsHook,
        GlobalStepWaiterHook,
        Head,
        LatestExporter,
        LinearClassifier,
        LinearEstimator,
        LinearRegressor,
        LoggingTensorHook,
        ModeKeys,
        MultiClassHead,
        MultiLabelHead,
        NanTensorHook,
        ProfilerHook,
        RegressionHead,
        RunConfig,
        SecondOrStepTimer,
        SessionRunArgs,
        SessionRunContext,
        SessionRunHook,
        SessionRunValues,
        StepCounterHook,
        StopAtStepHook,
        SummarySaverHook,
        TrainingExecutor,
        TrainSpec,
        VocabInfo,
        WarmStartSettings,
        export,
        train_and_evaluate,
    )

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "BestExporter",
    "BinaryClassHead",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "FinalExporter",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "Head",
    "LatestExporter",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
    "LoggingTensorHook",
    "ModeKeys",
    "MultiClassHead",
    "MultiLabelHead",
    "NanTensorHook",
    "ProfilerHook",
    "RegressionHead",
    "RunConfig",
    "SecondOrStepTimer",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "TrainSpec",
    "TrainingExecutor",
    "VocabInfo",
    "WarmStartSettings",
    "export",
    "train_and_evaluate",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(psflow, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
