"""Optimizers with a step size per parameter that depends on past gradients: Adagrad, Adam, RMSProp and FTRL."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import numpy as np

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.optimizers.base import SMALLEST, FloatArray, LearningRate, Optimizer, UpdateOperands, above_zero


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Divide by the root of the sum of squared gradients: ``a += g * g``, then ``p -= learning_rate * g / sqrt(a)``.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, see `Optimizer`.
    initial_accumulator_value : float
        Initial value of the sum, > 0, in place of an epsilon.

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


@dataclass(frozen=True)
class RMSProp(Optimizer):
    """Divide the gradient by the root of the running mean of its square, optionally with momentum.

    ``r = decay * r + (1 - decay) * g * g``, then ``p -= m`` with
    ``m = momentum * m + learning_rate * g / sqrt(r + epsilon)``; with `centered`, ``r - a * a`` replaces ``r`` in the
    root, where ``a = decay * a + (1 - decay) * g``.

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

    Notes
    -----
    The mean square starts at 1, as in `tf.train.RMSPropOptimizer`, so the first steps are small. An estimated variance
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
    centered: Annotated[bool, Key("Whether to divide by the variance instead of the mean square.")] = False

    slot_names: ClassVar[tuple[str, ...]] = ("mean_square",)

    def __post_init__(self) -> None:
        super().__post_init__()
        # unused slots are not kept: they would be a third of the memory of a table
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
