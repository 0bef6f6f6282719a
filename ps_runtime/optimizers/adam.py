"""Adam and its relatives: a mean gradient, divided by the root of the mean squared gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
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

EpsilonHat = Annotated[
    bool, Key("Whether epsilon is added before the correction of the mean square; false: after it, as in torch.")
]


@dataclass(frozen=True)
class Adam(DecayingOptimizer):
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
    epsilon_hat : bool
        Whether `epsilon` is the paper's "epsilon hat" (end of its section 2), added before `v` is corrected, as in
        `tf.train.AdamOptimizer`; else it is added after that, as in ``torch.optim.Adam`` and the paper's algorithm 1.
    amsgrad : bool
        Divide by the largest `v` so far, with one more slot.
    weight_decay : float
        See `Momentum`; `AdamW` decays apart from the gradient.

    Notes
    -----
    ``torch.optim.Adam`` has ``epsilon_hat=False``. `epsilon` is at least the smallest normal number of the parameters'
    dtype: 6.1e-5 for float16.

    References
    ----------
    Kingma, Ba, Adam: A Method for Stochastic Optimization, 2014.
    Reddi, Kale, Kumar, On the Convergence of Adam and Beyond, 2018 (amsgrad).
    """

    learning_rate: LearningRate = 0.001
    beta1: Annotated[float, Key("Decay of the mean gradient, in [0, 1).")] = 0.9
    beta2: Annotated[float, Key("Decay of the mean squared gradient, in [0, 1).")] = 0.999
    epsilon: Annotated[float, Key("Added to the root of the mean squared gradient, > 0.")] = 1e-8
    _: KW_ONLY
    epsilon_hat: EpsilonHat = True
    amsgrad: Annotated[bool, Key("Whether to divide by the largest mean square so far.")] = False

    slot_names: ClassVar[tuple[str, ...]] = ("m", "v")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "slot_names", ("m", "v", *["largest_v"] * self.amsgrad))

    def initial_slot(self, name: str) -> float:
        """Return 0 for ``m``, ``v`` and ``largest_v``."""
        return {"m": 0.0, "v": 0.0, "largest_v": 0.0}[name]

    def update(self, operands: UpdateOperands) -> None:
        """Apply one gradient in place; see `Optimizer.update`."""
        _, gradients, slots, scratch, _, num_updates = operands
        m, v = slots["m"], slots["v"]
        self.decay_weights(operands)
        move_mean(m, gradients, self.beta1, scratch)
        np.multiply(gradients, gradients, out=scratch)
        move_mean(v, scratch, self.beta2, scratch)
        if self.amsgrad:
            v = np.maximum(slots["largest_v"], v, out=slots["largest_v"])
        np.sqrt(v, out=scratch)
        correction = math.sqrt(1.0 - self.beta2**num_updates)
        np.add(
            scratch, above_zero(self.epsilon * (1.0 if self.epsilon_hat else correction), scratch.dtype), out=scratch
        )
        self._step(operands, correction)

    def _step(self, operands: UpdateOperands, correction: float) -> None:
        """Move the parameters, given the divisor in `scratch` and the correction of the mean square."""
        parameters, _, slots, scratch, learning_rate, num_updates = operands
        np.divide(slots["m"], scratch, out=scratch)
        np.multiply(scratch, learning_rate * correction / (1.0 - self.beta1**num_updates), out=scratch)
        np.subtract(parameters, scratch, out=parameters)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        for name in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                yield f"{name} is {getattr(self, name)}, expected a number in [0, 1)"
        if not SMALLEST <= self.epsilon < math.inf:
            yield f"epsilon is {self.epsilon}, expected a finite number >= {SMALLEST:.2g}"


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam that draws parameters towards 0 apart from the gradient: ``p *= 1 - learning_rate * weight_decay`` first.

    Parameters
    ----------
    learning_rate, beta1, beta2, epsilon, epsilon_hat, amsgrad
        See `Adam`; `epsilon_hat` is off.
    weight_decay : float
        Share of a parameter that is taken off, multiplied by the learning rate, >= 0.

    Notes
    -----
    The defaults are those of ``torch.optim.AdamW``. Of a sparse table only the rows of a push decay.

    References
    ----------
    Loshchilov, Hutter, Decoupled Weight Decay Regularization, 2017.
    """

    _: KW_ONLY
    epsilon_hat: EpsilonHat = False
    weight_decay: Annotated[
        float,
        Key("Share of each parameter that is taken off, before it is multiplied by the learning rate, 0 or more."),
    ] = 0.01

    def decay_weights(self, operands: UpdateOperands) -> None:
        """Draw the parameters towards 0."""
        np.multiply(operands.parameters, 1.0 - operands.learning_rate * self.weight_decay, out=operands.parameters)


@dataclass(frozen=True)
class NAdam(Adam):
    """Adam that looks one step ahead, with a mean gradient that has less weight at first.

    With ``u(t) = beta1 * (1 - 0.96**(t * momentum_decay) / 2)`` and ``U(t)`` the product of u(1) to u(t), steps are
    along ``(1 - u(t)) / (1 - U(t)) * g + u(t + 1) / (1 - U(t + 1)) * m``.

    Parameters
    ----------
    learning_rate, beta1, beta2, epsilon, epsilon_hat, amsgrad, weight_decay
        See `Adam`.
    momentum_decay : float
        How fast the mean gradient gains weight, >= 0.

    Notes
    -----
    The defaults are those of ``torch.optim.NAdam``.

    References
    ----------
    Dozat, Incorporating Nesterov Momentum into Adam, 2016.
    """

    _: KW_ONLY
    epsilon_hat: EpsilonHat = False
    momentum_decay: Annotated[float, Key("How fast the mean gradient gains weight, 0 or more.")] = 0.004

    def _step(self, operands: UpdateOperands, correction: float) -> None:
        parameters, gradients, slots, scratch, learning_rate, num_updates = operands
        now, product = self._weights(num_updates)
        after, next_product = self._weights(num_updates + 1)
        np.multiply(gradients, learning_rate * correction * (1.0 - now) / (1.0 - product), out=gradients)
        np.divide(gradients, scratch, out=gradients)
        np.subtract(parameters, gradients, out=parameters)
        np.divide(slots["m"], scratch, out=scratch)
        np.multiply(scratch, learning_rate * correction * after / (1.0 - next_product), out=scratch)
        np.subtract(parameters, scratch, out=parameters)

    def _weights(self, t: int) -> tuple[float, float]:
        """Return ``u(t)`` and ``U(t)``."""
        return _momentum_products(self.beta1, self.momentum_decay).of(t)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        if not 0.0 <= self.momentum_decay < math.inf:
            yield f"momentum_decay is {self.momentum_decay}, expected a finite number >= 0"


class _MomentumProducts:
    """The weights of `NAdam` and their products: each follows from the one before."""

    def __init__(self, beta1: float, decay: float) -> None:
        self._beta1, self._decay = beta1, decay
        self._known = (0, 1.0)

    def of(self, t: int) -> tuple[float, float]:
        """Return the weight at `t`, and the product of those up to it."""
        start, product = self._known if self._known[0] <= t else (0, 1.0)
        for step in range(start + 1, t + 1):
            product *= self._weight(step)
        self._known = (t, product)
        return self._weight(t), product

    def _weight(self, t: int) -> float:
        return self._beta1 * (1.0 - 0.5 * math.pow(0.96, t * self._decay))


_momentum_products = lru_cache(_MomentumProducts)
