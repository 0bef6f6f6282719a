"""Buffers that a module changes in training, with the rule by which the values of several replicas become one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from psflow.ps_runtime.model.calls.scope import Declared, ModelScope
from psflow.ps_runtime.optimizers import Counter, MovingAverage

if TYPE_CHECKING:
    from psflow.ps_runtime.torch_modules.bound import HeldTensor

LAST_VALUE = MovingAverage(1.0)
"""The rule of a buffer that each batch sets anew."""


class TrackedBuffer:
    """A buffer of its own in each call: in training, forward changes a copy, and the push carries what it did."""

    def __init__(self, held: HeldTensor, rule: MovingAverage | Counter) -> None:
        self.held, self.rule, self.name = held, rule, held.name
        dtype = held.declared.dtype if held.tensor.is_floating_point() else "float64"  # integers cannot be pushed
        self._declared = Declared(held.declared.shape, dtype, trainable=True)
        self._first: NDArray[Any] = held.tensor.detach().numpy().astype(dtype)
        self._before = self._first

    def begin(self, scope: ModelScope) -> None:
        """Give the buffer the value of the call."""
        held = self.held
        value: NDArray[Any] = scope.variable(self.name, self._declared, lambda shape, dtype, rng: self._first)
        self._before = value.copy()
        held.tensor.data = torch.from_numpy(value.copy()).to(held.tensor.dtype)
        setattr(held.part, held.key, held.tensor)  # forward may have put another one there

    def pushed(self) -> NDArray[Any] | None:
        """Return what a push carries: the value of the batch, or what was added; None if nothing changed."""
        after = getattr(self.held.part, self.held.key).detach().numpy().astype(self._declared.dtype)
        if np.array_equal(after, self._before):  # torch does not count all writes, such as those of F.batch_norm
            return None
        if isinstance(self.rule, Counter):
            return np.asarray(after - self._before)
        weight = self.rule.learning_rate_at(0)  # a number, as TorchModule checks
        return np.asarray(after if weight == 1.0 else self._before + (after - self._before) / weight)
