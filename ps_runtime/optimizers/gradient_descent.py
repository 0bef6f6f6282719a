"""Plain gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from psflow.ps_runtime.optimizers.base import Optimizer, UpdateOperands

__all__ = ["GradientDescent"]


@dataclass(frozen=True)
class GradientDescent(Optimizer):
    """Step against the gradient: ``p -= learning_rate * g``.

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
        np.multiply(operands.gradients, operands.learning_rate, out=operands.gradients)
        np.subtract(operands.parameters, operands.gradients, out=operands.parameters)
