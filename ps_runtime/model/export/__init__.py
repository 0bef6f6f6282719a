"""Serving functions and outputs of exported models, as ``psflow.export.ServingInputReceiver``."""

from __future__ import annotations

from psflow.ps_runtime.model.export.outputs import ClassificationOutput, ExportOutput, PredictOutput, RegressionOutput
from psflow.ps_runtime.model.export.receiver import (
    ServingInputReceiver,
    TensorServingInputReceiver,
    build_raw_serving_input_receiver_fn,
)

__all__ = [
    "ClassificationOutput",
    "ExportOutput",
    "PredictOutput",
    "RegressionOutput",
    "ServingInputReceiver",
    "TensorServingInputReceiver",
    "build_raw_serving_input_receiver_fn",
]
