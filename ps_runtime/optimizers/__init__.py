"""Optimizers, which a ps applies to its arena, and schedules of their learning rates."""

from collections.abc import Mapping
from types import MappingProxyType

from psflow.ps_runtime.optimizers.adam import Adam, AdamW, NAdam
from psflow.ps_runtime.optimizers.adaptive import Adagrad, RMSProp
from psflow.ps_runtime.optimizers.averages import Counter, MovingAverage
from psflow.ps_runtime.optimizers.base import FloatArray, LearningRate, Optimizer, Schedule, Slots, UpdateOperands
from psflow.ps_runtime.optimizers.ftrl import Ftrl
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent, Momentum
from psflow.ps_runtime.optimizers.schedules import (
    CosineDecay,
    ExponentialDecay,
    InverseTimeDecay,
    NaturalExpDecay,
    PiecewiseConstant,
    PolynomialDecay,
)
from psflow.ps_runtime.optimizers.warmups import (
    ChainedSchedules,
    CosineDecayRestarts,
    LinearWarmup,
    OneCycle,
    WarmupCosine,
)

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "Adagrad",
    "Adam",
    "AdamW",
    "ChainedSchedules",
    "CosineDecay",
    "CosineDecayRestarts",
    "Counter",
    "ExponentialDecay",
    "FloatArray",
    "Ftrl",
    "GradientDescent",
    "InverseTimeDecay",
    "LearningRate",
    "LinearWarmup",
    "Momentum",
    "MovingAverage",
    "NAdam",
    "NaturalExpDecay",
    "OneCycle",
    "Optimizer",
    "PiecewiseConstant",
    "PolynomialDecay",
    "RMSProp",
    "Schedule",
    "Slots",
    "UpdateOperands",
    "WarmupCosine",
]

OPTIMIZERS: Mapping[str, type[Optimizer]] = MappingProxyType(
    {rule.__name__: rule for rule in (GradientDescent, Momentum, Adagrad, Adam, AdamW, NAdam, RMSProp, Ftrl)}
)
"""The optimizers that a configuration can name without their module."""

SCHEDULES: Mapping[str, type[Schedule]] = MappingProxyType(
    {
        schedule.__name__: schedule
        for schedule in (
            CosineDecay,
            CosineDecayRestarts,
            ExponentialDecay,
            InverseTimeDecay,
            NaturalExpDecay,
            OneCycle,
            PiecewiseConstant,
            PolynomialDecay,
            WarmupCosine,
            LinearWarmup,
            ChainedSchedules,
        )
    }
)
"""The schedules that a configuration can name; the last two hold others."""
