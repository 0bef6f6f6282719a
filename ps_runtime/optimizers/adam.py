"""Gradient descent by running means of the gradient and its square."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.optimizers.base import SMALLEST, LearningRate, Optimizer, UpdateOperands, above_zero

__all__ = ["Adam"]


@dataclass(frozen=True)
class Adam(Optimizer):
    """Divide the mean gradient by the root of the mean squared gradient, both corrected for their start at zero.

    ``m = beta1 * m + (1 - beta1) * g``, ``v = beta2 * v + (1 - beta2) * g * g``, then
    ``p -= learning_rate * sqrt(1 - beta2**t) / (1 - beta1**t) * m / (sqrt(v) + epsilon)`` at the `t`-th update.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, see `Optimizer`.
    beta1, beta2 : float
        Decay of the two means, in [0, 1).
    epsilon : float
        Added to the root, > 0.

    Notes
    -----
    `epsilon` is the paper's "epsilon hat" (end of its section 2): it is not scaled by the correction of `v`. It is at
    least the smallest normal number of the parameters' dtype: 6.1e-5 for float16.

    References
    ----------
    Kingma, Ba, Adam: A Method for Stochastic Optimization, 2014.
    """

    learning_rate: LearningRate = 0.001
    beta1: Annotated[float, Key("Decay of the mean gradient, in [0, 1).")] = 0.9
    beta2: Annotated[float, Key("Decay of the mean squared gradient, in [0, 1).")] = 0.999
    epsilon: Annotated[float, Key("Added to the root of the mean squared gradient, > 0.")] = 1e-8

    slot_names: ClassVar[tuple[str, ...]] = ("m", "v")

    def initial_slot(self, name: str) -> float:
        """Return 0 for ``m`` and ``v``."""
        return {"m": 0.0, "v": 0.0}[name]

    def update(self, operands: UpdateOperands) -> None:
        """Apply one gradient in place; see `Optimizer.update`."""
        parameters, gradients, slots, scratch, learning_rate, num_updates = operands
        m, v = slots["m"], slots["v"]
        corrected = learning_rate * math.sqrt(1.0 - self.beta2**num_updates) / (1.0 - self.beta1**num_updates)
        np.multiply(m, self.beta1, out=m)
        np.multiply(gradients, 1.0 - self.beta1, out=scratch)
        np.add(m, scratch, out=m)
        np.multiply(v, self.beta2, out=v)
        np.multiply(gradients, gradients, out=scratch)
        np.multiply(scratch, 1.0 - self.beta2, out=scratch)
        np.add(v, scratch, out=v)
        np.sqrt(v, out=scratch)
        np.add(scratch, above_zero(self.epsilon, scratch.dtype), out=scratch)
        np.divide(m, scratch, out=scratch)
        np.multiply(scratch, corrected, out=scratch)
        np.subtract(parameters, scratch, out=parameters)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        for name in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                yield f"{name} is {getattr(self, name)}, expected a number in [0, 1)"
        if not SMALLEST <= self.epsilon < math.inf:
            yield f"epsilon is {self.epsilon}, expected a finite number >= {SMALLEST:.2g}"
