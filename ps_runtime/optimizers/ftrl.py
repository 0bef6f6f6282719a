"""FTRL-Proximal, for sparse linear models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import numpy as np

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.optimizers.base import (
    SMALLEST,
    FloatArray,
    LearningRate,
    Optimizer,
    UpdateOperands,
    above_zero,
)


@dataclass(frozen=True)
class Ftrl(Optimizer):
    """Set each weight to the optimum for all gradients so far, with a penalty on its size.

    With ``k = -learning_rate_power``: ``n' = n + g * g``, ``z += g - (n'**k - n**k) / learning_rate * p``, then
    ``p = (clip(z, -l1, l1) - z) / (n'**k / learning_rate + 2 * l2)``, which is 0 as long as ``abs(z) <= l1``.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, see `Optimizer`. An update with one below 1.2e-38 changes nothing.
    learning_rate_power : float
        Exponent by which the step size falls with the sum of squared gradients, <= 0; 0 keeps it constant.
    initial_accumulator_value : float
        Initial value of that sum, >= 0.
    l1_regularization_strength : float
        Weight of the sum of absolute values, >= 0: makes weights exactly zero.
    l2_regularization_strength : float
        Weight of the sum of squares, >= 0.
    l2_shrinkage_regularization_strength : float
        Shrinks weights in each update, by a penalty on them that the sum of squared gradients does not count, >= 0.
    beta : float
        Added to the roots of the sums: lowers the first step sizes, >= 0.

    Notes
    -----
    Weights follow from the slots, which do not depend on initial values: start with zeros, as `tf.train.FtrlOptimizer`
    does in linear models. The first update overwrites other values.

    References
    ----------
    McMahan et al., Ad Click Prediction: a View from the Trenches, 2013.
    """

    learning_rate: LearningRate
    learning_rate_power: Annotated[float, Key("Power of the sum of squared gradients, 0 or less.")] = -0.5
    initial_accumulator_value: Annotated[float, Key("Start of the sum of squared gradients, 0 or more.")] = 0.1
    l1_regularization_strength: Annotated[
        float, Key("L1 penalty, 0 or more: it sets weights of little use to exactly 0.")
    ] = 0.0
    l2_regularization_strength: Annotated[float, Key("L2 penalty, 0 or more.")] = 0.0
    _: KW_ONLY
    l2_shrinkage_regularization_strength: Annotated[
        float, Key("L2 penalty that shrinks weights in each update, but not their step sizes, 0 or more.")
    ] = 0.0
    beta: Annotated[float, Key("Added to the root of the sum of squared gradients, 0 or more.")] = 0.0

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
        if self.l2_shrinkage_regularization_strength:
            np.multiply(parameters, 2.0 * self.l2_shrinkage_regularization_strength, out=scratch)
            np.add(linear, scratch, out=linear)
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
        # beta cancels in the difference of the roots above
        np.add(curvature, 2.0 * self.l2_regularization_strength + self.beta / learning_rate, out=curvature)
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
        for name in (
            "initial_accumulator_value",
            "l1_regularization_strength",
            "l2_regularization_strength",
            "l2_shrinkage_regularization_strength",
            "beta",
        ):
            if not 0.0 <= getattr(self, name) < math.inf:
                yield f"{name} is {getattr(self, name)}, expected a finite number >= 0"
