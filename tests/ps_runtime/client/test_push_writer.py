"""Gradients arrive under their own names, wherever a model has made them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.client.pulls import Splits
from psflow.ps_runtime.client.push_writer import NonFinite, PushWriter
from psflow.ps_runtime.model.lookups import RowGradient
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec

MODEL = ModelSpec(
    (VariableSpec("a", (3,), "float32", 0), VariableSpec("b", (3,), "float32", 0)),
    (GradientDescent(learning_rate=1.0).config(),),
)
(LAYOUT,) = place(MODEL, 1)
Arrays = Mapping[str, np.ndarray]


def row_gradient_of(ids: Any, values: Any) -> RowGradient:
    return RowGradient(np.int64(ids), np.float32(values))


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
    writer = PushWriter(LAYOUT, MODEL, Splits(1))
    made = writer.buffers(NoMemory())
    made["a"][:], made["b"][:] = [1, 2, 3], [4, 5, 6]
    gradients = gradients_of(made)
    expected = {name: gradient.copy() for name, gradient in gradients.items()}
    push = writer.write(NoMemory(), gradients, [1.0], 1)
    pushed = dict(zip("ab", piece_views(LAYOUT, push.gradients), strict=True))
    for name, gradient in expected.items():
        np.testing.assert_array_equal(pushed[name], gradient)
    assert push.mask.tolist() == [int(name in expected) for name in "ab"]


TABLES = (TableSpec("items", 100, 2, "float32", 0, {"name": "zeros"}, seed=1),)
MODEL_WITH_TABLES = replace(MODEL, tables=TABLES)
ONES = np.ones(3, np.float32)


@pytest.mark.parametrize(
    ("gradients", "expected"),
    [
        ({"a": ONES, "b": ONES}, None),
        ({"a": ONES * 3e38, "b": -ONES * 3e38}, None),
        ({"a": ONES, "b": np.float32([0, np.nan, 0])}, NonFinite("b", None, np.nan)),
        ({"a": np.float32([0, 0, -np.inf])}, NonFinite("a", None, -np.inf)),
        ({"a": ONES, "items": row_gradient_of([7, 9], [[1, 1], [1, np.inf]])}, NonFinite("items", 9, np.inf)),
        ({"items": row_gradient_of([7, 9], [[3e38, 3e38], [3e38, 1]])}, None),
    ],
)
def test_what_is_not_finite_is_found_with_its_name(gradients: Any, expected: NonFinite | None) -> None:
    writer = PushWriter(LAYOUT, MODEL_WITH_TABLES, Splits(1))
    np.testing.assert_equal(writer.non_finite(writer.write(NoMemory(), gradients, [1.0], 1)), expected)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_a_number_that_is_too_large_for_its_variable_is_found() -> None:
    writer = PushWriter(LAYOUT, MODEL, Splits(1))
    assert writer.non_finite(writer.write(NoMemory(), {"b": np.full(3, 1e39)}, [1.0], 1)) == ("b", None, np.inf)


def test_what_an_earlier_push_has_left_is_not_of_this_one() -> None:
    writer = PushWriter(LAYOUT, MODEL, Splits(1))
    assert writer.non_finite(writer.write(NoMemory(), {"b": ONES * np.inf}, [1.0], 1)) is not None
    assert writer.non_finite(writer.write(NoMemory(), {"a": ONES}, [1.0], 1)) is None


def test_a_group_of_empty_variables_has_nothing_to_copy() -> None:
    model = ModelSpec(
        (VariableSpec("w", (16,), "float32", 0), VariableSpec("z", (0,), "float64", 0)),
        (GradientDescent(learning_rate=1.0).config(),),
    )
    (layout,) = place(model, 1)
    push = PushWriter(layout, model, Splits(1)).write(
        NoMemory(), {"w": np.ones(16, np.float32), "z": np.empty(0)}, [1.0], 1
    )
    assert [view.tolist() for view in piece_views(layout, push.gradients)] == [[1.0] * 16, []]
    assert push.mask.tolist() == [1, 1]
