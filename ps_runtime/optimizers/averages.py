"""Rules for state that no gradient moves: moving averages and counters, such as the statistics of batch normalization.

A replica pushes what it has measured on its batch in place of a gradient; the ps combines it with the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.optimizers.base import Optimizer, UpdateOperands


@dataclass(frozen=True)
class MovingAverage(Optimizer):
    """Move a value towards that of a batch: ``m = (1 - learning_rate) * m + learning_rate * x``; a push carries ``x``.

    A variance stays positive whatever the number of pushes: both terms are.

    Parameters
    ----------
    learning_rate : float or callable
        Weight of the batch, in [0, 1]: torch's ``momentum``; 1 minus the ``decay`` of
        ``tf.train.ExponentialMovingAverage``.

    Notes
    -----
    Staleness does not scale it. A synchronous round applies the mean of its batches once.

    Examples
    --------
    >>> def model_fn(features, labels, mode):
    ...     mean = get_variable("mean", (3,), initializer=zeros)
    ...     w = get_variable("w", (3,))
    ...     adam = Adam(0.001).apply_gradients({"w": features.mean(axis=0)})
    ...     average = MovingAverage(0.1).apply_gradients({"mean": features.mean(axis=0)})
    ...     return EstimatorSpec(mode, loss=w[0], train_op=[adam, average])
    """

    is_scaled_by_staleness: ClassVar[bool] = False
    takes_gradients: ClassVar[bool] = False

    learning_rate: Annotated[float, Key("Weight of the batch, in [0, 1].")]

    def initial_slot(self, name: str) -> float:
        """Raise KeyError: there are no slots."""
        raise KeyError(name)

    def update(self, operands: UpdateOperands) -> None:
        """Apply one value in place; see `Optimizer.update`."""
        np.multiply(operands.parameters, 1.0 - operands.learning_rate, out=operands.scratch)
        np.multiply(operands.gradients, operands.learning_rate, out=operands.gradients)
        np.add(operands.scratch, operands.gradients, out=operands.parameters)

    def _range_faults(self) -> Iterator[str]:
        yield from super()._range_faults()
        if not callable(self.learning_rate) and self.learning_rate > 1.0:
            yield f"learning_rate is {self.learning_rate}, expected a number in [0, 1]"


@dataclass(frozen=True)
class Counter(Optimizer):
    """Add what a push carries: ``n += x``.

    A synchronous round adds the mean of its pushes, so that each round counts as one step.

    Parameters
    ----------
    learning_rate : float
        Factor of what is added; 1 to count.
    """

    is_scaled_by_staleness: ClassVar[bool] = False
    takes_gradients: ClassVar[bool] = False

    learning_rate: Annotated[float, Key("Factor of what is added.")] = 1.0

    def initial_slot(self, name: str) -> float:
        """Raise KeyError: there are no slots."""
        raise KeyError(name)

    def update(self, operands: UpdateOperands) -> None:
        """Add one value in place; see `Optimizer.update`."""
        np.multiply(operands.gradients, operands.learning_rate, out=operands.gradients)
        np.add(operands.parameters, operands.gradients, out=operands.parameters)


def states_of(optimizers: Sequence[Optimizer]) -> frozenset[int]:
    """Return the indices of the optimizers to which pushes carry measured state, not gradients."""
    return frozenset(index for index, rule in enumerate(optimizers) if not rule.takes_gradients)
