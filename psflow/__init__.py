"""psflow: Estimator-style parameter-server training on numpy and Dask.

What a user needs stands here by name; each name is imported when it is first used, so that a role, or a served model,
loads no more than it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psflow import estimator, feature_column
    from psflow.ps_runtime import initializers, layers, losses, metrics, optimizers
    from psflow.ps_runtime.columns.crossing import CrossOptions
    from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions, Quantiles
    from psflow.ps_runtime.coordinator.coordinator import CoordinatorMode, run_distribute_coordinator
    from psflow.ps_runtime.data.base import Format
    from psflow.ps_runtime.data.dataset import Dataset
    from psflow.ps_runtime.data.input_pipeline import InputContext
    from psflow.ps_runtime.data.record_formats import ArrowInput, Csv, JsonLinesInput, LibSvm, ParquetInput, Tsv
    from psflow.ps_runtime.estimator.baseline_classifier import BaselineClassifier
    from psflow.ps_runtime.estimator.baseline_estimator import BaselineEstimator
    from psflow.ps_runtime.estimator.baseline_regressor import BaselineRegressor
    from psflow.ps_runtime.estimator.dnn_classifier import DNNClassifier
    from psflow.ps_runtime.estimator.dnn_estimator import DNNEstimator
    from psflow.ps_runtime.estimator.dnn_linear_combined_classifier import DNNLinearCombinedClassifier
    from psflow.ps_runtime.estimator.dnn_linear_combined_estimator import DNNLinearCombinedEstimator
    from psflow.ps_runtime.estimator.dnn_linear_combined_regressor import DNNLinearCombinedRegressor
    from psflow.ps_runtime.estimator.dnn_regressor import DNNRegressor
    from psflow.ps_runtime.estimator.early_stopping import (
        make_early_stopping_hook,
        stop_if_higher_hook,
        stop_if_lower_hook,
        stop_if_no_decrease_hook,
        stop_if_no_increase_hook,
    )
    from psflow.ps_runtime.estimator.estimator import Estimator
    from psflow.ps_runtime.estimator.eval_metrics import read_eval_metrics
    from psflow.ps_runtime.estimator.in_memory_evaluator import InMemoryEvaluatorHook
    from psflow.ps_runtime.estimator.linear_classifier import LinearClassifier
    from psflow.ps_runtime.estimator.linear_estimator import LinearEstimator
    from psflow.ps_runtime.estimator.linear_regressor import LinearRegressor
    from psflow.ps_runtime.estimator.monitored import MonitoredTrainingSession
    from psflow.ps_runtime.estimator.server import Server
    from psflow.ps_runtime.estimator.warm_start_settings import VocabInfo, WarmStartSettings
    from psflow.ps_runtime.keys import Key
    from psflow.ps_runtime.model import export, summary
    from psflow.ps_runtime.model.basic_hooks import (
        FinalOpsHook,
        GlobalStepWaiterHook,
        NanTensorHook,
        StopAtStepHook,
        make_stop_at_checkpoint_step_hook,
    )
    from psflow.ps_runtime.model.best import better
    from psflow.ps_runtime.model.canned.base import Head
    from psflow.ps_runtime.model.canned.binary_class_head import BinaryClassHead
    from psflow.ps_runtime.model.canned.multi_class_head import MultiClassHead
    from psflow.ps_runtime.model.canned.multi_label_head import MultiLabelHead
    from psflow.ps_runtime.model.canned.regression_head import RegressionHead
    from psflow.ps_runtime.model.embedding import embedding_lookup
    from psflow.ps_runtime.model.exporters import BestExporter, FinalExporter, LatestExporter
    from psflow.ps_runtime.model.gradient_buffer import gradient_buffer
    from psflow.ps_runtime.model.hook_timer import SecondOrStepTimer
    from psflow.ps_runtime.model.hooks import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
    from psflow.ps_runtime.model.listeners import CheckpointSaverListener
    from psflow.ps_runtime.model.logging_hook import LoggingTensorHook
    from psflow.ps_runtime.model.profiler_hook import ProfilerHook
    from psflow.ps_runtime.model.reporting_hooks import StepCounterHook, SummarySaverHook
    from psflow.ps_runtime.model.saver_hook import CheckpointSaverHook
    from psflow.ps_runtime.model.scaffold import Saver, Scaffold
    from psflow.ps_runtime.model.scope import get_or_create_global_step, get_variable
    from psflow.ps_runtime.model.serving_receiver import placeholder
    from psflow.ps_runtime.model.sparse import SparseGradient
    from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
    from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
    from psflow.ps_runtime.optimizers import (
        Adagrad,
        Adam,
        CosineDecay,
        ExponentialDecay,
        Ftrl,
        GradientDescent,
        Momentum,
        Optimizer,
        PiecewiseConstant,
        PolynomialDecay,
        RMSProp,
    )
    from psflow.ps_runtime.partitioners import (
        fixed_size_partitioner,
        min_max_variable_partitioner,
        variable_axis_size_partitioner,
    )
    from psflow.ps_runtime.roles.events import (
        Checkpoint,
        Evaluation,
        Event,
        Export,
        FirstStep,
        LogMessage,
        Metrics,
        PsListening,
        Restored,
        RoleEnded,
        RoleLeaving,
        RoleLost,
        RoleStarted,
        SummaryFile,
        WorkersMissing,
    )
    from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Hogwild, Sync
    from psflow.ps_runtime.specs.run_config import RunConfig
    from psflow.ps_runtime.specs.schema import InputSchema, Scaling
    from psflow.ps_runtime.specs.step_deadline import StepDeadline
    from psflow.ps_runtime.specs.strategy import ParameterServerStrategy
    from psflow.ps_runtime.specs.task_facts import ClusterSpec
    from psflow.ps_runtime.specs.worker_context import WorkerContext, get_current_worker_context
    from psflow.tasks.exports.training import train_and_evaluate
    from psflow.tasks.exports.training_executor import TrainingExecutor

_MODULES = {
    ".ps_runtime.columns.crossing": ["CrossOptions"],
    ".ps_runtime.columns.options": ["ColumnOptions", "LabelOptions", "Quantiles"],
    ".ps_runtime.coordinator.coordinator": ["CoordinatorMode", "run_distribute_coordinator"],
    ".ps_runtime.data.base": ["Format"],
    ".ps_runtime.data.dataset": ["Dataset"],
    ".ps_runtime.data.input_pipeline": ["InputContext"],
    ".ps_runtime.data.record_formats": ["ArrowInput", "Csv", "JsonLinesInput", "LibSvm", "ParquetInput", "Tsv"],
    ".ps_runtime.estimator.dnn_classifier": ["DNNClassifier"],
    ".ps_runtime.estimator.baseline_classifier": ["BaselineClassifier"],
    ".ps_runtime.estimator.baseline_regressor": ["BaselineRegressor"],
    ".ps_runtime.estimator.dnn_linear_combined_classifier": ["DNNLinearCombinedClassifier"],
    ".ps_runtime.estimator.dnn_linear_combined_regressor": ["DNNLinearCombinedRegressor"],
    ".ps_runtime.estimator.dnn_regressor": ["DNNRegressor"],
    ".ps_runtime.estimator.baseline_estimator": ["BaselineEstimator"],
    ".ps_runtime.estimator.dnn_estimator": ["DNNEstimator"],
    ".ps_runtime.estimator.dnn_linear_combined_estimator": ["DNNLinearCombinedEstimator"],
    ".ps_runtime.estimator.linear_estimator": ["LinearEstimator"],
    ".ps_runtime.model.canned.base": ["Head"],
    ".ps_runtime.model.canned.binary_class_head": ["BinaryClassHead"],
    ".ps_runtime.model.canned.multi_class_head": ["MultiClassHead"],
    ".ps_runtime.model.canned.multi_label_head": ["MultiLabelHead"],
    ".ps_runtime.model.canned.regression_head": ["RegressionHead"],
    ".ps_runtime.estimator.early_stopping": [
        "make_early_stopping_hook",
        "stop_if_higher_hook",
        "stop_if_lower_hook",
        "stop_if_no_decrease_hook",
        "stop_if_no_increase_hook",
    ],
    ".ps_runtime.estimator.estimator": ["Estimator"],
    ".ps_runtime.estimator.eval_metrics": ["read_eval_metrics"],
    ".ps_runtime.estimator.in_memory_evaluator": ["InMemoryEvaluatorHook"],
    ".ps_runtime.estimator.linear_classifier": ["LinearClassifier"],
    ".ps_runtime.estimator.linear_regressor": ["LinearRegressor"],
    ".ps_runtime.estimator.monitored": ["MonitoredTrainingSession"],
    ".ps_runtime.estimator.server": ["Server"],
    ".ps_runtime.estimator.warm_start_settings": ["VocabInfo", "WarmStartSettings"],
    ".ps_runtime.model.basic_hooks": [
        "FinalOpsHook",
        "GlobalStepWaiterHook",
        "NanTensorHook",
        "StopAtStepHook",
        "make_stop_at_checkpoint_step_hook",
    ],
    ".ps_runtime.model.best": ["better"],
    ".ps_runtime.model.embedding": ["embedding_lookup"],
    ".ps_runtime.model.exporters": ["BestExporter", "FinalExporter", "LatestExporter"],
    ".ps_runtime.model.gradient_buffer": ["gradient_buffer"],
    ".ps_runtime.model.hook_timer": ["SecondOrStepTimer"],
    ".ps_runtime.model.hooks": ["SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues"],
    ".ps_runtime.model.listeners": ["CheckpointSaverListener"],
    ".ps_runtime.model.logging_hook": ["LoggingTensorHook"],
    ".ps_runtime.model.profiler_hook": ["ProfilerHook"],
    ".ps_runtime.model.reporting_hooks": ["StepCounterHook", "SummarySaverHook"],
    ".ps_runtime.model.saver_hook": ["CheckpointSaverHook"],
    ".ps_runtime.model.scaffold": ["Saver", "Scaffold"],
    ".ps_runtime.model.scope": ["get_or_create_global_step", "get_variable"],
    ".ps_runtime.model.serving_receiver": ["placeholder"],
    ".ps_runtime.model.sparse": ["SparseGradient"],
    ".ps_runtime.model.spec": ["EstimatorSpec", "ModeKeys"],
    ".ps_runtime.optimizers": [
        "Adagrad",
        "Adam",
        "CosineDecay",
        "ExponentialDecay",
        "Ftrl",
        "GradientDescent",
        "Momentum",
        "Optimizer",
        "PiecewiseConstant",
        "PolynomialDecay",
        "RMSProp",
    ],
    ".ps_runtime.partitioners": [
        "fixed_size_partitioner",
        "min_max_variable_partitioner",
        "variable_axis_size_partitioner",
    ],
    ".ps_runtime.roles.events": [
        "Checkpoint",
        "Evaluation",
        "Event",
        "Export",
        "FirstStep",
        "LogMessage",
        "Metrics",
        "PsListening",
        "Restored",
        "RoleLost",
        "RoleEnded",
        "RoleLeaving",
        "RoleStarted",
        "SummaryFile",
        "WorkersMissing",
    ],
    ".ps_runtime.specs.consistency": ["Async", "BoundedStaleness", "Hogwild", "Sync"],
    ".ps_runtime.keys": ["Key"],
    ".ps_runtime.specs.run_config": ["RunConfig"],
    ".ps_runtime.specs.schema": ["InputSchema", "Scaling"],
    ".ps_runtime.specs.step_deadline": ["StepDeadline"],
    ".ps_runtime.specs.task_facts": ["ClusterSpec"],
    ".ps_runtime.specs.strategy": ["ParameterServerStrategy"],
    ".ps_runtime.specs.worker_context": ["WorkerContext", "get_current_worker_context"],
    ".ps_runtime.model.training": ["EvalSpec", "TrainSpec"],
    ".tasks.exports.training": ["train_and_evaluate"],
    ".tasks.exports.training_executor": ["TrainingExecutor"],
}
_SUBMODULES = {
    "export": ".ps_runtime.model.export",
    "estimator": ".estimator",
    "feature_column": ".feature_column",
    "initializers": ".ps_runtime.initializers",
    "layers": ".ps_runtime.layers",
    "losses": ".ps_runtime.losses",
    "metrics": ".ps_runtime.metrics",
    "optimizers": ".ps_runtime.optimizers",
    "summary": ".ps_runtime.model.summary",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Adagrad",
    "Adam",
    "ArrowInput",
    "Async",
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "BestExporter",
    "BinaryClassHead",
    "BoundedStaleness",
    "Checkpoint",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ClusterSpec",
    "ColumnOptions",
    "CoordinatorMode",
    "CosineDecay",
    "CrossOptions",
    "Csv",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "Dataset",
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "Evaluation",
    "Event",
    "ExponentialDecay",
    "Export",
    "FinalExporter",
    "FinalOpsHook",
    "FirstStep",
    "Format",
    "Ftrl",
    "GlobalStepWaiterHook",
    "GradientDescent",
    "Head",
    "Hogwild",
    "InMemoryEvaluatorHook",
    "InputContext",
    "InputSchema",
    "JsonLinesInput",
    "Key",
    "LabelOptions",
    "LatestExporter",
    "LibSvm",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
    "LogMessage",
    "LoggingTensorHook",
    "Metrics",
    "ModeKeys",
    "Momentum",
    "MonitoredTrainingSession",
    "MultiClassHead",
    "MultiLabelHead",
    "NanTensorHook",
    "Optimizer",
    "ParameterServerStrategy",
    "ParquetInput",
    "PiecewiseConstant",
    "PolynomialDecay",
    "ProfilerHook",
    "PsListening",
    "Quantiles",
    "RMSProp",
    "RegressionHead",
    "Restored",
    "RoleEnded",
    "RoleLeaving",
    "RoleLost",
    "RoleStarted",
    "RunConfig",
    "Saver",
    "Scaffold",
    "Scaling",
    "SecondOrStepTimer",
    "Server",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SparseGradient",
    "StepCounterHook",
    "StepDeadline",
    "StopAtStepHook",
    "SummaryFile",
    "SummarySaverHook",
    "Sync",
    "TrainSpec",
    "TrainingExecutor",
    "Tsv",
    "VocabInfo",
    "WarmStartSettings",
    "WorkerContext",
    "WorkersMissing",
    "better",
    "embedding_lookup",
    "estimator",
    "export",
    "feature_column",
    "fixed_size_partitioner",
    "get_current_worker_context",
    "get_or_create_global_step",
    "get_variable",
    "gradient_buffer",
    "initializers",
    "layers",
    "losses",
    "make_early_stopping_hook",
    "make_stop_at_checkpoint_step_hook",
    "metrics",
    "min_max_variable_partitioner",
    "optimizers",
    "placeholder",
    "read_eval_metrics",
    "run_distribute_coordinator",
    "stop_if_higher_hook",
    "stop_if_lower_hook",
    "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
    "summary",
    "train_and_evaluate",
    "variable_axis_size_partitioner",
]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(_SUBMODULES[name], __name__)
    if name in _HOME:
        value = globals()[name] = getattr(importlib.import_module(_HOME[name], __name__), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
