"""Optimizers that divide by the root of past squared gradients: Adagrad and RMSProp."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import numpy as np

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.optimizers.base import (
    SMALLEST,
    DecayingOptimizer,
    LearningRate,
    UpdateOperands,
    above_zero,
    move_mean,
)


@dataclass(frozen=True)
class Adagrad(DecayingOptimizer):
    """Divide by the root of the sum of squared gradients.

    ``a += g * g``, then ``p -= learning_rate * g / (sqrt(a) + epsilon)``.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, see `Optimizer`.
    initial_accumulator_value : float
        Initial value of the sum, > 0, or with an `epsilon` >= 0.
    epsilon : float
        Added to the root, >= 0.
    weight_decay : float
        See `Momentum`.

    Notes
    -----
    ``torch.optim.Adagrad`` has ``initial_accumulator_value=0.0, epsilon=1e-10``.

    References
    ----------
    Duchi, Hazan, Singer, Adaptive Subgradient Methods for Online Learning and Stochastic Optimization, 2011.
    """

    learning_rate: LearningRate = 0.001
    initial_accumulator_value: Annotated[
        float, Key("Start of the sum of squared gradients, > 0, or 0 with an epsilon.")
    ] = 0.1
    _: KW_ONLY
    epsilon: Annotated[float, Key("Added to the root of the sum, 0 or more; torch's is 1e-10.")] = 0.0

    slot_names: ClassVar[tuple[str, ...]] = ("accumulator",)

    def initial_slot(self, name: str) -> float:
        """Return `initial_accumulator_value` for ``accumulator``."""
        return {"accumulator": self.initial_accumulator_value}[name]

    def update(self, operands: UpdateOperands) -> None:
        """Apply one gradient in place; see `Optimizer.update`."""
        parameters, gradients, slots, scratch, learning_rate, _ = operands
        accumulator = slots["accumulator"]
        self.decay_weights(operands)
        np.multiply(gradients, gradients, out=scratch)
        np.add(accumulator, scratch, out=accumulator)
        np.sqrt(accumulator, out=scratch)
        if self.epsilon:
            np.add(scratch, above_zero(self.epsilon, scratch.dtype), out=scratch)
        np.multiply(gradients, learning_rate, out=gradients)
        np.divide(gradients, scratch, out=gradients)
        np.subtract(parameters, gradients, out=parameters)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        if not (self.epsilon == 0.0 or SMALLEST <= self.epsilon < math.inf):
            yield f"epsilon is {self.epsilon}, expected 0 or a finite number >= {SMALLEST:.2g}"
        smallest = 0.0 if self.epsilon else SMALLEST
        if not smallest <= self.initial_accumulator_value < math.inf:
            yield (
                f"initial_accumulator_value is {self.initial_accumulator_value}, "
                f"expected a finite number >= {smallest:.2g}{'' if smallest == 0.0 else ', or 0 with an epsilon'}"
            )


@dataclass(frozen=True)
class RMSProp(DecayingOptimizer):
    """Divide the gradient by the root of the running mean of its square, optionally with momentum.

    ``r = decay * r + (1 - decay) * g * g``, then ``p -= m`` with
    ``m = momentum * m + learning_rate * g / sqrt(r + epsilon)``; with `centered`, ``r - a * a`` replaces ``r`` in the
    root, where ``a = decay * a + (1 - decay) * g``. Without `rate_in_momentum`, ``p -= learning_rate * m`` with
    ``m = momentum * m + g / sqrt(r + epsilon)``.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, see `Optimizer`.
    decay : float
        Share of the means that survives an update, in [0, 1).
    momentum : float
        Share of the last step that is added to the next, in [0, 1).
    epsilon : float
        Added to the mean square, inside the root, > 0.
    centered : bool
        Divide by the standard deviation instead, with one more slot.
    initial_mean_square : float
        Initial value of the mean square, >= 0; 1 as in `tf.train.RMSPropOptimizer`, so that the first steps are small.
    epsilon_in_root : bool
        Whether `epsilon` is added inside the root, as there; else to the root.
    rate_in_momentum : bool
        Whether each step enters the momentum with its own learning rate, as there; else the learning rate of an update
        scales the whole momentum. The results differ only under a schedule.
    weight_decay : float
        See `Momentum`.

    Notes
    -----
    ``torch.optim.RMSprop`` has ``decay=0.99, epsilon=1e-8, initial_mean_square=0.0, epsilon_in_root=False,
    rate_in_momentum=False``. An estimated variance that rounding makes negative counts as 0.

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
    centered: Annotated[bool, Key("Whether to divide by the variance instead of the mean square.")] = False
    initial_mean_square: Annotated[float, Key("Start of the mean squared gradient, 0 or more; torch's is 0.")] = 1.0
    epsilon_in_root: Annotated[
        bool, Key("Whether epsilon is added inside the root; false: to the root, as in torch.")
    ] = True
    rate_in_momentum: Annotated[
        bool,
        Key("Whether each step enters the momentum with its learning rate; false: that of now scales it, as in torch."),
    ] = True

    slot_names: ClassVar[tuple[str, ...]] = ("mean_square",)

    def __post_init__(self) -> None:
        super().__post_init__()
        # unused slots are not kept: they would be a third of the memory of a table
        used = ("mean_square", *["mean"] * self.centered, *["momentum"] * (self.momentum > 0.0))
        object.__setattr__(self, "slot_names", used)

    def initial_slot(self, name: str) -> float:
        """Return `initial_mean_square` for ``mean_square``, 0 for ``mean`` and ``momentum``."""
        return {"mean_square": self.initial_mean_square, "mean": 0.0, "momentum": 0.0}[name]

    def update(self, operands: UpdateOperands) -> None:
        """Apply one gradient in place; see `Optimizer.update`."""
        parameters, gradients, slots, scratch, learning_rate, _ = operands
        mean_square, epsilon = slots["mean_square"], above_zero(self.epsilon, scratch.dtype)
        inside, outside = (epsilon, 0.0) if self.epsilon_in_root else (0.0, epsilon)
        self.decay_weights(operands)
        np.multiply(gradients, gradients, out=scratch)
        move_mean(mean_square, scratch, self.decay, scratch)
        if self.centered:
            mean = slots["mean"]
            move_mean(mean, gradients, self.decay, scratch)
            np.multiply(mean, mean, out=scratch)
            np.subtract(mean_square, scratch, out=scratch)
            np.maximum(scratch, 0.0, out=scratch)
            np.add(scratch, inside, out=scratch)
        else:
            np.add(mean_square, inside, out=scratch)
        np.sqrt(scratch, out=scratch)
        if outside:
            np.add(scratch, outside, out=scratch)
        if self.rate_in_momentum:
            np.multiply(gradients, learning_rate, out=gradients)
        np.divide(gradients, scratch, out=gradients)
        if self.momentum > 0.0:
            last = slots["momentum"]
            np.multiply(last, self.momentum, out=last)
            np.add(last, gradients, out=last)
            gradients = last
        if not self.rate_in_momentum:
            gradients = np.multiply(gradients, learning_rate, out=scratch)
        np.subtract(parameters, gradients, out=parameters)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        for name in ("decay", "momentum"):
            if not 0.0 <= getattr(self, name) < 1.0:
                yield f"{name} is {getattr(self, name)}, expected a number in [0, 1)"
        if not SMALLEST <= self.epsilon < math.inf:
            yield f"epsilon is {self.epsilon}, expected a finite number >= {SMALLEST:.2g}"
        if not 0.0 <= self.initial_mean_square < math.inf:
            yield f"initial_mean_square is {self.initial_mean_square}, expected a finite number >= 0"
