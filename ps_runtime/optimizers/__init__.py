"""Optimizers, which a ps applies to its arena, and schedules of their learning rates."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from types import MappingProxyType

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.optimizers.adam import Adam, AdamW, NAdam
from psflow.ps_runtime.optimizers.adaptive import Adagrad, RMSProp
from psflow.ps_runtime.optimizers.averages import Counter, MovingAverage
from psflow.ps_runtime.optimizers.base import FloatArray, LearningRate, Optimizer, Schedule, Slots, UpdateOperands
from psflow.ps_runtime.optimizers.ftrl import Ftrl
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent, Momentum
from psflow.ps_runtime.optimizers.plateau import ReduceOnPlateau
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
    "NAMES_ELSEWHERE",
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
    "ReduceOnPlateau",
    "Schedule",
    "Slots",
    "UpdateOperands",
    "WarmupCosine",
    "optimizer_named",
]

OPTIMIZERS: Mapping[str, type[Optimizer]] = MappingProxyType(
    {rule.__name__: rule for rule in (GradientDescent, Momentum, Adagrad, Adam, AdamW, NAdam, RMSProp, Ftrl)}
)
"""The optimizers that a configuration, or an argument, can name without their module."""

NAMES_ELSEWHERE: Mapping[str, str] = MappingProxyType({"SGD": "GradientDescent"})
"""Names that TensorFlow and torch have for one of `OPTIMIZERS`, and psflow has not."""


def optimizer_named(name: str) -> Optimizer:
    """Return the optimizer `name` with its defaults.

    Raises UsageError if there is none of that name, or it has no default learning rate.

    Examples
    --------
    >>> optimizer_named("Adam").learning_rate
    0.001
    """
    rule = OPTIMIZERS.get(name)
    if rule is None:
        near = did_you_mean(NAMES_ELSEWHERE.get(name, name), OPTIMIZERS)
        raise UsageError((f"unknown optimizer {name!r}, expected one of {', '.join(OPTIMIZERS)}{near}",))
    if any(field.name == "learning_rate" and field.default is MISSING for field in fields(rule)):
        raise UsageError((f"{name!r} has no default learning rate: give {name}(learning_rate)",))
    return rule()  # type: ignore[call-arg]  # has a default of it


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
            ReduceOnPlateau,
            LinearWarmup,
            ChainedSchedules,
        )
    }
)
"""The schedules that a configuration can name; the last two hold others, except the one that reads evaluations."""
