"""What follows the sums of a hidden layer: an activation function, and in training dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.activations import ActivationFn, Backward, activated
from psflow.ps_runtime.layers import FloatArray
from psflow.ps_runtime.model.randomness import step_random
from psflow.ps_runtime.model.spec import ModeKeys

__all__ = ["HiddenUnits"]


@dataclass(frozen=True)
class HiddenUnits:
    """What becomes of the sums of each hidden layer."""

    activation_fn: ActivationFn = "relu"
    dropout: float = 0.0
    config: Any = None

    @classmethod
    def of(cls, activation_fn: ActivationFn, dropout: float | None, mode: ModeKeys, config: Any) -> HiddenUnits:
        """Return those of a call of model_fn: nothing is dropped but in training."""
        return cls(activation_fn, (dropout or 0.0) if mode == ModeKeys.TRAIN else 0.0, config)

    def __call__(self, layer: str, sums: FloatArray) -> tuple[FloatArray, Backward]:
        """Return the outputs of a layer, and how a gradient goes back through them; see `activated`."""
        outputs, backward = activated(self.activation_fn, sums)
        if not self.dropout:
            return outputs, backward
        factors = self._factors(layer, outputs)
        return outputs * factors, _scaled(backward, factors)

    def _factors(self, layer: str, outputs: FloatArray) -> NDArray[Any]:
        drawn = step_random(f"{layer}/dropout", self.config).random(outputs.shape, np.float32)
        return (drawn >= self.dropout).astype(outputs.dtype) / (1 - self.dropout)


def _scaled(backward: Backward, factors: NDArray[Any]) -> Callable[[FloatArray], FloatArray]:
    return lambda gradient: backward(gradient * factors)
