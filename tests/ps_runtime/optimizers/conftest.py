"""Fixtures for optimizer tests: the rules, an arena, and formulas written from the papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from psflow.ps_runtime.optimizers import (
    Adagrad,
    Adam,
    AdamW,
    Ftrl,
    GradientDescent,
    Momentum,
    NAdam,
    Optimizer,
    RMSProp,
    UpdateOperands,
)

RULES = [
    GradientDescent(learning_rate=0.1),
    Momentum(learning_rate=0.01),
    Momentum(learning_rate=0.01, momentum=0.7, use_nesterov=True),
    Adagrad(learning_rate=0.05),
    Adam(),
    Adam(learning_rate=0.01, beta1=0.8, beta2=0.95, epsilon=1e-4),
    Adam(learning_rate=0.01, epsilon=1e-3, epsilon_hat=False, weight_decay=0.1),
    Adam(learning_rate=0.01, amsgrad=True),
    AdamW(learning_rate=0.01),
    NAdam(learning_rate=0.01),
    Adagrad(learning_rate=0.05, initial_accumulator_value=0.0, epsilon=1e-10),
    RMSProp(learning_rate=0.01),
    RMSProp(learning_rate=0.01, initial_mean_square=0.0, epsilon=1e-6, epsilon_in_root=False),
    RMSProp(learning_rate=0.01, decay=0.8, momentum=0.5, epsilon=1e-3),
    RMSProp(learning_rate=0.01, momentum=0.9, centered=True),
    RMSProp(learning_rate=0.01, momentum=0.5, rate_in_momentum=False),
    Ftrl(learning_rate=0.1),
    Ftrl(
        learning_rate=0.1,
        learning_rate_power=-0.7,
        initial_accumulator_value=1.0,
        l1_regularization_strength=1e-4,
        l2_regularization_strength=0.1,
    ),
    Ftrl(learning_rate=0.01, learning_rate_power=0.0, initial_accumulator_value=0.0),
    Ftrl(learning_rate=0.1, l2_shrinkage_regularization_strength=0.05, beta=0.5),
]


@pytest.fixture
def rules() -> list[Optimizer]:
    return RULES


@pytest.fixture(params=RULES, ids=repr)
def rule(request: pytest.FixtureRequest) -> Optimizer:
    return request.param


@dataclass
class Arena:
    """Parameters with the slots and the scratch that a ps keeps beside them."""

    rule: Optimizer
    parameters: NDArray[Any]
    slots: dict[str, NDArray[Any]] = field(init=False)
    scratch: NDArray[Any] = field(init=False)
    num_updates: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.parameters = self.parameters.copy()
        self.slots = {
            name: np.full_like(self.parameters, self.rule.initial_slot(name)) for name in self.rule.slot_names
        }
        self.scratch = np.full_like(self.parameters, np.nan)  # reading it before writing shows as NaN

    def update(self, gradients: NDArray[Any]) -> None:
        self.num_updates += 1
        self.rule.update(
            UpdateOperands(
                self.parameters,
                gradients.astype(self.parameters.dtype),
                self.slots,
                self.scratch,
                learning_rate=self.rule.learning_rate_at(self.num_updates - 1),
                num_updates=self.num_updates,
            )
        )


@pytest.fixture
def arena_of() -> Callable[[Optimizer, NDArray[Any]], Arena]:
    return Arena


def gradient_descent(p: list[float], rate: float) -> Iterator[list[float]]:
    """theta <- theta - eta g."""
    while True:
        g = yield p
        p = [x - rate * gx for x, gx in zip(p, g, strict=True)]


def momentum(p: list[float], rate: float, mu: float, nesterov: bool) -> Iterator[list[float]]:
    """TensorFlow 1.15, tf.train.MomentumOptimizer: accumulation = momentum * accumulation + gradient; then

    variable -= learning_rate * accumulation, or with use_nesterov
    variable -= learning_rate * gradient + momentum * learning_rate * accumulation.
    """
    a = [0.0] * len(p)
    while True:
        g = yield p
        a = [mu * ax + gx for ax, gx in zip(a, g, strict=True)]
        if nesterov:
            p = [x - (gx * rate + ax * mu * rate) for x, gx, ax in zip(p, g, a, strict=True)]
        else:
            p = [x - rate * ax for x, ax in zip(p, a, strict=True)]


def adagrad(p: list[float], rate: float, start: float, epsilon: float) -> Iterator[list[float]]:
    """Duchi et al. 2011, diagonal form: theta <- theta - eta g / sqrt(start + sum of all g^2 so far)."""
    history: list[list[float]] = []
    while True:
        g = yield p
        history.append(g)
        sums = [start + sum(past[i] ** 2 for past in history) for i in range(len(p))]
        p = [x - rate * gx / (sx**0.5 + epsilon) for x, gx, sx in zip(p, g, sums, strict=True)]


def adam(p: list[float], rate: float, rule: Adam) -> Iterator[list[float]]:
    """Kingma, Ba 2014, algorithm 1, or with the reordering at the end of section 2; moments written out as sums.

    Decay of weights and the largest v of AMSGrad as in torch.optim.Adam and AdamW, the mean as in torch.optim.NAdam.
    """
    history: list[list[float]] = []
    b1, b2 = rule.beta1, rule.beta2
    largest = [0.0] * len(p)

    def weight(t: int) -> float:
        return b1 * (1 - 0.96 ** (t * rule.momentum_decay) / 2) if isinstance(rule, NAdam) else b1

    while True:
        g = yield p
        if isinstance(rule, AdamW):
            p = [x - rate * rule.weight_decay * x for x in p]
        else:
            g = [gx + rule.weight_decay * x for gx, x in zip(g, p, strict=True)]
        history.append(g)
        t = len(history)
        m = [(1 - b1) * sum(b1 ** (t - 1 - s) * history[s][i] for s in range(t)) for i in range(len(p))]
        v = [(1 - b2) * sum(b2 ** (t - 1 - s) * history[s][i] ** 2 for s in range(t)) for i in range(len(p))]
        largest = [max(old, new) for old, new in zip(largest, v, strict=True)]
        v = largest if rule.amsgrad else v
        root = (1 - b2**t) ** 0.5
        if rule.epsilon_hat:
            divisor = [(vx**0.5 + rule.epsilon) / root for vx in v]
        else:
            divisor = [(vx / (1 - b2**t)) ** 0.5 + rule.epsilon for vx in v]
        if isinstance(rule, NAdam):
            until = math.prod(weight(s) for s in range(1, t + 1))
            ahead = weight(t + 1) / (1 - until * weight(t + 1))
            mean = [(1 - weight(t)) / (1 - until) * gx + ahead * mx for gx, mx in zip(g, m, strict=True)]
        else:
            mean = [mx / (1 - b1**t) for mx in m]
        p = [x - rate * mx / d for x, mx, d in zip(p, mean, divisor, strict=True)]


def rms_prop(p: list[float], rate: float, rule: RMSProp) -> Iterator[list[float]]:
    """Hinton 2012 and Graves 2013, eq. 38-41, moments written out as sums; the mean square begins at 1 and the

    step size is inside the momentum, as in TensorFlow 1.15, tf.train.RMSPropOptimizer.
    """
    history: list[list[float]] = []
    step = [0.0] * len(p)
    while True:
        g = yield p
        history.append(g)
        d, t = rule.decay, len(history)
        first = rule.initial_mean_square * d**t
        square = [first + (1 - d) * sum(d ** (t - 1 - s) * history[s][i] ** 2 for s in range(t)) for i in range(len(p))]
        mean = [(1 - d) * sum(d ** (t - 1 - s) * history[s][i] for s in range(t)) for i in range(len(p))]
        inside, outside = (rule.epsilon, 0.0) if rule.epsilon_in_root else (0.0, rule.epsilon)
        root = [(v - rule.centered * m**2 + inside) ** 0.5 + outside for v, m in zip(square, mean, strict=True)]
        inner, outer = (rate, 1.0) if rule.rate_in_momentum else (1.0, rate)
        step = [rule.momentum * s + inner * gx / r for s, gx, r in zip(step, g, root, strict=True)]
        p = [x - outer * s for x, s in zip(p, step, strict=True)]


def ftrl(p: list[float], rate: float, rule: Ftrl) -> Iterator[list[float]]:
    """McMahan et al. 2013, algorithm 1 with any power of n in place of its root, and 2 * l2 for lambda_2."""
    l1, l2, k = rule.l1_regularization_strength, rule.l2_regularization_strength, -rule.learning_rate_power
    n, z = [rule.initial_accumulator_value] * len(p), [0.0] * len(p)
    while True:
        g = yield p
        for i, gx in enumerate(g):
            sigma = ((n[i] + gx**2) ** k - n[i] ** k) / rate
            z[i] += gx + 2 * rule.l2_shrinkage_regularization_strength * p[i] - sigma * p[i]
            n[i] += gx**2
        p = [
            0.0 if abs(zx) <= l1 else -(zx - math.copysign(l1, zx)) / ((nx**k + rule.beta) / rate + 2 * l2)
            for zx, nx in zip(z, n, strict=True)
        ]


@pytest.fixture
def start(rule: Optimizer) -> Callable[[int, Any], NDArray[Any]]:
    """First parameters under which `rule` keeps its laws: those of Ftrl follow from its slots, and begin at 0."""
    return lambda size, dtype: np.linspace(-1.0, 1.0, size).astype(dtype) * (not isinstance(rule, Ftrl))


@pytest.fixture
def reference(rule: Optimizer) -> Callable[[list[float]], Iterator[list[float]]]:
    """The formula of `rule` over Python floats: a generator that is sent gradients and yields parameters."""
    rate = rule.learning_rate
    match rule:
        case GradientDescent():
            return lambda p: gradient_descent(p, rate)
        case Momentum():
            return lambda p: momentum(p, rate, rule.momentum, rule.use_nesterov)
        case Adagrad():
            return lambda p: adagrad(p, rate, rule.initial_accumulator_value, rule.epsilon)
        case Adam():
            return lambda p: adam(p, rate, rule)
        case RMSProp():
            return lambda p: rms_prop(p, rate, rule)
        case Ftrl():
            return lambda p: ftrl(p, rate, rule)
    raise AssertionError(rule)
