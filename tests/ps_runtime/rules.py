"""The optimizers that a description of a model names."""

from __future__ import annotations

import math

from psflow.ps_runtime.optimizers import OPTIMIZERS, Optimizer
from psflow.ps_runtime.specs.variables import ModelSpec


def rules_of(model: ModelSpec) -> list[Optimizer]:
    """Return the optimizers of `model` as a ps has them: without a learning rate of their own."""
    configs = [dict(config) for config in model.optimizers]
    return [OPTIMIZERS[config.pop("name")](learning_rate=math.nan, **config) for config in configs]
