"""Gradient descent, plain and with momentum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import numpy as np

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.optimizers.base import DecayingOptimizer, UpdateOperands


@dataclass(frozen=True)
class GradientDescent(DecayingOptimizer):
    """Step against the gradient: ``p -= learning_rate * g``.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, see `Optimizer`.
    weight_decay : float
        See `Momentum`.

    Examples
    --------
    >>> import numpy as np
    >>> parameters, gradients = np.array([1.0, 2.0]), np.array([10.0, -10.0])
    >>> rule = GradientDescent(learning_rate=0.5)
    >>> rule.update(UpdateOperands(parameters, gradients, {}, np.empty(2), rule.learning_rate_at(0), num_updates=1))
    >>> parameters
    array([-4.,  7.])
    """

    def initial_slot(self, name: str) -> float:
        """Raise KeyError: this rule keeps no slots."""
        raise KeyError(name)

    def update(self, operands: UpdateOperands) -> None:
        """Apply one gradient in place; see `Optimizer.update`."""
        self.decay_weights(operands)
        np.multiply(operands.gradients, operands.learning_rate, out=operands.gradients)
        np.subtract(operands.parameters, operands.gradients, out=operands.parameters)


@dataclass(frozen=True)
class Momentum(DecayingOptimizer):
    """Step along a decaying sum of gradients.

    ``m = momentum * m + g``, then ``p -= learning_rate * m``;
    with `use_nesterov`, ``p -= learning_rate * (g + momentum * m)``.

    Parameters
    ----------
    learning_rate : float or callable
        Step size, see `Optimizer`.
    momentum : float
        Share of the sum that survives an update, in [0, 1).
    use_nesterov : bool
        Look one step ahead.
    weight_decay : float
        Added to the gradient as ``weight_decay * p``, >= 0. Of a sparse table only the rows of a push decay.

    Notes
    -----
    As ``torch.optim.SGD(..., momentum=momentum, nesterov=use_nesterov, weight_decay=weight_decay)``.

    References
    ----------
    Sutskever et al., On the importance of initialization and momentum in deep learning, 2013.
    """

    momentum: Annotated[float, Key("Share of the sum of gradients that survives an update, in [0, 1).")] = 0.9
    _: KW_ONLY
    use_nesterov: Annotated[bool, Key("Whether to look one step ahead.")] = False

    slot_names: ClassVar[tuple[str, ...]] = ("momentum",)

    def initial_slot(self, name: str) -> float:
        """Return 0 for ``momentum``."""
        return {"momentum": 0.0}[name]

    def update(self, operands: UpdateOperands) -> None:
        """Apply one gradient in place; see `Optimizer.update`."""
        parameters, gradients, slots, scratch, learning_rate, _ = operands
        velocity = slots["momentum"]
        self.decay_weights(operands)
        np.multiply(velocity, self.momentum, out=velocity)
        np.add(velocity, gradients, out=velocity)
        if self.use_nesterov:
            np.multiply(velocity, self.momentum, out=scratch)
            np.add(scratch, gradients, out=scratch)
            np.multiply(scratch, learning_rate, out=scratch)
        else:
            np.multiply(velocity, learning_rate, out=scratch)
        np.subtract(parameters, scratch, out=parameters)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        if not 0.0 <= self.momentum < 1.0:
            yield f"momentum is {self.momentum}, expected a number in [0, 1)"
