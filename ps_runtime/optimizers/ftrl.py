"""Follow the regularized leader: sparse weights for linear models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.optimizers.base import SMALLEST, FloatArray, LearningRate, Optimizer, UpdateOperands, above_zero

__all__ = ["Ftrl"]


@dataclass(frozen=True)
class Ftrl(Optimizer):
    """Set each weight to the best one for all gradients so far, under a penalty on its size.

    With ``k = -learning_rate_power``: ``n' = n + g * g``, ``z += g - (n'**k - n**k) / learning_rate * p``, then
    ``p = (clip(z, -l1, l1) - z) / (n'**k / learning_rate + 2 * l2)``, which is 0 as long as ``abs(z) <= l1``.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, see `Optimizer`. An update with one below 1.2e-38 changes nothing.
    learning_rate_power : float
        How the step size of a parameter falls with the sum of its squared gradients, <= 0; 0 keeps it.
    initial_accumulator_value : float
        What that sum starts at, >= 0.
    l1_regularization_strength : float
        Weight of the sum of absolute values, >= 0: makes weights exactly zero.
    l2_regularization_strength : float
        Weight of the sum of squares, >= 0.

    Notes
    -----
    Weights follow from the slots, which know nothing of their first values: begin with zeros, as
    `tf.train.FtrlOptimizer` does in linear models. Others are forgotten with the first update.

    References
    ----------
    McMahan et al., Ad Click Prediction: a View from the Trenches, 2013.
    """

    learning_rate: LearningRate
    learning_rate_power: Annotated[float, Key("Power of the sum of squared gradients, 0 or less.")] = -0.5
    initial_accumulator_value: Annotated[float, Key("Start of the sum of squared gradients, 0 or more.")] = 0.1
    l1_regularization_strength: Annotated[
        float, Key("L1 penalty, 0 or more: it makes weights of little use exactly 0.")
    ] = 0.0
    l2_regularization_strength: Annotated[float, Key("L2 penalty, 0 or more.")] = 0.0

    slot_names: ClassVar[tuple[str, ...]] = ("accumulator", "linear")

    def initial_slot(self, name: str) -> float:
        """Return `initial_accumulator_value` for ``accumulator``, 0 for ``linear``."""
        return {"accumulator": self.initial_accumulator_value, "linear": 0.0}[name]

    def update(self, operands: UpdateOperands) -> None:
        """Apply one gradient in place; see `Optimizer.update`."""
        parameters, gradients, slots, scratch, learning_rate, _ = operands
        if learning_rate < SMALLEST:
            return
        accumulator, linear = slots["accumulator"], slots["linear"]
        np.add(linear, gradients, out=linear)
        self._root(accumulator, out=scratch)
        np.multiply(gradients, gradients, out=gradients)
        np.add(accumulator, gradients, out=accumulator)
        curvature = gradients
        self._root(accumulator, out=curvature)
        np.multiply(curvature, 1.0 / learning_rate, out=curvature)
        np.multiply(scratch, 1.0 / learning_rate, out=scratch)
        np.subtract(scratch, curvature, out=scratch)
        np.multiply(scratch, parameters, out=scratch)
        np.add(linear, scratch, out=linear)
        np.add(curvature, 2.0 * self.l2_regularization_strength, out=curvature)
        np.maximum(curvature, above_zero(SMALLEST, curvature.dtype), out=curvature)  # 0 where no gradient was seen
        np.clip(linear, -self.l1_regularization_strength, self.l1_regularization_strength, out=scratch)
        np.subtract(scratch, linear, out=scratch)
        np.divide(scratch, curvature, out=parameters)

    def _root(self, values: FloatArray, *, out: FloatArray) -> None:
        if self.learning_rate_power == -0.5:
            np.sqrt(values, out=out)
        else:
            np.power(values, -self.learning_rate_power, out=out)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        if not -math.inf < self.learning_rate_power <= 0.0:
            yield f"learning_rate_power is {self.learning_rate_power}, expected a finite number <= 0"
        for name in ("initial_accumulator_value", "l1_regularization_strength", "l2_regularization_strength"):
            if not 0.0 <= getattr(self, name) < math.inf:
                yield f"{name} is {getattr(self, name)}, expected a finite number >= 0"
