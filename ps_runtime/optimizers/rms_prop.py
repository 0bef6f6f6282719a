"""Gradient descent by the gradient over the root of its mean square."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import numpy as np

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.optimizers.base import SMALLEST, FloatArray, LearningRate, Optimizer, UpdateOperands, above_zero

__all__ = ["RMSProp"]


@dataclass(frozen=True)
class RMSProp(Optimizer):
    """Divide the gradient by the root of the running mean of its square, with a heavy ball if asked.

    ``r = decay * r + (1 - decay) * g * g``, then ``p -= m`` with
    ``m = momentum * m + learning_rate * g / sqrt(r + epsilon)``; with `centered`, ``r - a * a`` stands for ``r`` in the
    root, where ``a = decay * a + (1 - decay) * g``.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, see `Optimizer`.
    decay : float
        Share of the means that survives an update, in [0, 1).
    momentum : float
        Share of the last step that is made again, in [0, 1).
    epsilon : float
        Added to the mean square, inside the root, > 0.
    centered : bool
        Divide by the standard deviation instead: one more slot, a little more work.

    Notes
    -----
    The mean square begins at 1, as in `tf.train.RMSPropOptimizer`, so first steps are small. An estimated variance
    that rounding makes negative counts as 0.

    References
    ----------
    Hinton, Neural Networks for Machine Learning, lecture 6e, 2012.
    Graves, Generating Sequences With Recurrent Neural Networks, 2013 (the centered form).
    """

    learning_rate: LearningRate
    decay: Annotated[float, Key("Decay of the mean squared gradient, in [0, 1).")] = 0.9
    momentum: Annotated[float, Key("Share of the last step that is added to this one, in [0, 1).")] = 0.0
    epsilon: Annotated[float, Key("Added to the mean squared gradient, > 0.")] = 1e-10
    _: KW_ONLY
    centered: Annotated[bool, Key("Whether to divide by the variance in place of the mean square.")] = False

    slot_names: ClassVar[tuple[str, ...]] = ("mean_square",)

    def __post_init__(self) -> None:
        super().__post_init__()
        # what a configuration does not use it does not keep: a third of the memory of a table
        used = ("mean_square", *["mean"] * self.centered, *["momentum"] * (self.momentum > 0.0))
        object.__setattr__(self, "slot_names", used)

    def initial_slot(self, name: str) -> float:
        """Return 1 for ``mean_square``, 0 for ``mean`` and ``momentum``."""
        return {"mean_square": 1.0, "mean": 0.0, "momentum": 0.0}[name]

    def update(self, operands: UpdateOperands) -> None:
        """Apply one gradient in place; see `Optimizer.update`."""
        parameters, gradients, slots, scratch, learning_rate, _ = operands
        mean_square, epsilon = slots["mean_square"], above_zero(self.epsilon, scratch.dtype)
        np.multiply(gradients, gradients, out=scratch)
        _move(mean_square, scratch, self.decay, scratch)
        if self.centered:
            mean = slots["mean"]
            _move(mean, gradients, self.decay, scratch)
            np.multiply(mean, mean, out=scratch)
            np.subtract(mean_square, scratch, out=scratch)
            np.maximum(scratch, 0.0, out=scratch)
            np.add(scratch, epsilon, out=scratch)
        else:
            np.add(mean_square, epsilon, out=scratch)
        np.sqrt(scratch, out=scratch)
        np.multiply(gradients, learning_rate, out=gradients)
        np.divide(gradients, scratch, out=gradients)
        if self.momentum > 0.0:
            last = slots["momentum"]
            np.multiply(last, self.momentum, out=last)
            np.add(last, gradients, out=last)
            gradients = last
        np.subtract(parameters, gradients, out=parameters)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        for name in ("decay", "momentum"):
            if not 0.0 <= getattr(self, name) < 1.0:
                yield f"{name} is {getattr(self, name)}, expected a number in [0, 1)"
        if not SMALLEST <= self.epsilon < math.inf:
            yield f"epsilon is {self.epsilon}, expected a finite number >= {SMALLEST:.2g}"


def _move(mean: FloatArray, values: FloatArray, decay: float, scratch: FloatArray) -> None:
    """Set `mean` to ``decay * mean + (1 - decay) * values``."""
    np.multiply(mean, decay, out=mean)
    np.multiply(values, 1.0 - decay, out=scratch)
    np.add(mean, scratch, out=mean)
