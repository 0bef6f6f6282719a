"""Optimizers, which a ps applies to its arena, and schedules of their learning rates."""

from collections.abc import Mapping
from types import MappingProxyType

from psflow.ps_runtime.optimizers.adaptive import Adagrad, Adam, Ftrl, RMSProp
from psflow.ps_runtime.optimizers.averages import Counter, MovingAverage
from psflow.ps_runtime.optimizers.base import FloatArray, LearningRate, Optimizer, Slots, UpdateOperands
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent, Momentum
from psflow.ps_runtime.optimizers.schedules import CosineDecay, ExponentialDecay, PiecewiseConstant, PolynomialDecay

__all__ = [
    "OPTIMIZERS",
    "Adagrad",
    "Adam",
    "CosineDecay",
    "Counter",
    "ExponentialDecay",
    "FloatArray",
    "Ftrl",
    "GradientDescent",
    "LearningRate",
    "Momentum",
    "MovingAverage",
    "Optimizer",
    "PiecewiseConstant",
    "PolynomialDecay",
    "RMSProp",
    "Slots",
    "UpdateOperands",
]

OPTIMIZERS: Mapping[str, type[Optimizer]] = MappingProxyType(
    {rule.__name__: rule for rule in (GradientDescent, Momentum, Adagrad, Adam, RMSProp, Ftrl)}
)
"""The optimizers that a configuration can name without their module."""
