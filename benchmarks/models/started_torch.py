"""The network of `benchmarks.models.torch_nets`, with a hook that records the time of the first step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from benchmarks.models import torch_nets
from benchmarks.models.started import FirstStepHook
from psflow import EstimatorSpec, ModeKeys

__all__ = ["model_fn"]


def model_fn(
    features: NDArray[Any], labels: NDArray[Any], mode: ModeKeys, params: Mapping[str, Any], config: Any
) -> EstimatorSpec:
    """Return the spec of the network, with the hook in training."""
    spec = torch_nets.model_fn(features, labels, mode, {"network": "mlp"}, config)
    return replace(spec, training_hooks=[FirstStepHook(params["told"])]) if mode == ModeKeys.TRAIN else spec
