"""Gradients arrive under their own names, wherever a model has made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from psflow.ps_runtime.client.push_writer import PushWriter
from psflow.ps_runtime.client.splitting import Splits
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

MODEL = ModelSpec(
    (VariableSpec("a", (3,), "float32", 0), VariableSpec("b", (3,), "float32", 0)),
    (GradientDescent(learning_rate=1.0).config(),),
)
(LAYOUT,) = place(MODEL, 1)
Arrays = Mapping[str, np.ndarray]


class NoMemory:
    def outbox(self, nbytes: int) -> None:
        return None


@pytest.mark.parametrize(
    "gradients_of",
    [
        lambda made: {"a": made["a"], "b": made["b"]},
        lambda made: {"a": made["b"], "b": made["a"]},
        lambda made: {"a": np.full(3, 9, np.float32), "b": made["a"]},
        lambda made: {"a": made["a"][::-1], "b": made["a"]},
        lambda made: {"a": made["b"], "b": made["b"]},
        lambda made: {"b": made["a"]},
    ],
    ids=["as given", "swapped", "one fresh", "reversed", "twice", "one left out"],
)
def test_memory_for_one_gradient_may_hold_another(gradients_of: Callable[[Arrays], Arrays]) -> None:
    writer = PushWriter(LAYOUT, 1, (), Splits(1))
    made = writer.buffers(NoMemory())
    made["a"][:], made["b"][:] = [1, 2, 3], [4, 5, 6]
    gradients = gradients_of(made)
    expected = {name: gradient.copy() for name, gradient in gradients.items()}
    push = writer.write(NoMemory(), gradients, [1.0], 1)
    pushed = dict(zip("ab", piece_views(LAYOUT, push.gradients), strict=True))
    for name, gradient in expected.items():
        np.testing.assert_array_equal(pushed[name], gradient)
    assert push.mask.tolist() == [int(name in expected) for name in "ab"]
