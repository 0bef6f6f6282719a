"""Gradient descent with a step size for each parameter that shrinks with what it has seen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.optimizers.base import SMALLEST, LearningRate, Optimizer, UpdateOperands

__all__ = ["Adagrad"]


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Divide by the root of the sum of squared gradients: ``a += g * g``, then ``p -= learning_rate * g / sqrt(a)``.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, see `Optimizer`.
    initial_accumulator_value : float
        What the sum starts at, > 0: it stands where others add an epsilon.

    References
    ----------
    Duchi, Hazan, Singer, Adaptive Subgradient Methods for Online Learning and Stochastic Optimization, 2011.
    """

    learning_rate: LearningRate = 0.001
    initial_accumulator_value: Annotated[float, Key("Start of the sum of squared gradients, > 0.")] = 0.1

    slot_names: ClassVar[tuple[str, ...]] = ("accumulator",)

    def initial_slot(self, name: str) -> float:
        """Return `initial_accumulator_value` for ``accumulator``."""
        return {"accumulator": self.initial_accumulator_value}[name]

    def update(self, operands: UpdateOperands) -> None:
        """Apply one gradient in place; see `Optimizer.update`."""
        parameters, gradients, slots, scratch, learning_rate, _ = operands
        accumulator = slots["accumulator"]
        np.multiply(gradients, gradients, out=scratch)
        np.add(accumulator, scratch, out=accumulator)
        np.sqrt(accumulator, out=scratch)
        np.multiply(gradients, learning_rate, out=gradients)
        np.divide(gradients, scratch, out=gradients)
        np.subtract(parameters, gradients, out=parameters)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        if not SMALLEST <= self.initial_accumulator_value < math.inf:
            yield (
                f"initial_accumulator_value is {self.initial_accumulator_value}, "
                f"expected a finite number >= {SMALLEST:.2g}"
            )
