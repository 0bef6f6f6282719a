"""Update rules that a ps applies to its arena, and schedules of their learning rates."""

from psflow.ps_runtime.optimizers.adagrad import Adagrad
from psflow.ps_runtime.optimizers.adam import Adam
from psflow.ps_runtime.optimizers.base import LearningRate, Optimizer, UpdateOperands
from psflow.ps_runtime.optimizers.ftrl import Ftrl
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.optimizers.momentum import Momentum
from psflow.ps_runtime.optimizers.registry import OPTIMIZERS, optimizer_from_config
from psflow.ps_runtime.optimizers.rms_prop import RMSProp
from psflow.ps_runtime.optimizers.schedules import CosineDecay, ExponentialDecay, PiecewiseConstant, PolynomialDecay

__all__ = [
    "OPTIMIZERS",
    "Adagrad",
    "Adam",
    "CosineDecay",
    "ExponentialDecay",
    "Ftrl",
    "GradientDescent",
    "LearningRate",
    "Momentum",
    "Optimizer",
    "PiecewiseConstant",
    "PolynomialDecay",
    "RMSProp",
    "UpdateOperands",
    "optimizer_from_config",
]
