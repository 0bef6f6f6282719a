from __future__ import annotations

import dataclasses

import pytest

from psflow.ps_runtime.optimizers.adam import Adam
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec

SGD, ADAM = GradientDescent(learning_rate=0.1).config(), Adam(learning_rate=0.1).config()
W = VariableSpec("w", (3, 2), "float32", 0)
B = VariableSpec("b", (), "float64", None)
ITEMS = TableSpec("items", 9, 4, "float32", 0, {"name": "uniform", "scale": 0.05}, seed=3)
MODEL = ModelSpec((W, B), (SGD,), (ITEMS,))


def changed(**changes: object) -> ModelSpec:
    return ModelSpec((dataclasses.replace(W, **changes), B), (SGD, ADAM), (ITEMS,))


def with_table(**changes: object) -> ModelSpec:
    return ModelSpec((W, B), (SGD, ADAM), (dataclasses.replace(ITEMS, **changes),))


def test_sizes():
    assert (W.nbytes, W.num_rows, B.nbytes, B.num_rows, MODEL.nbytes) == (24, 3, 8, 1, 32)


def test_json_tells_all():
    again = ModelSpec.from_json(MODEL.to_json())
    assert again == MODEL
    assert again.digest == MODEL.digest
    assert 0 <= MODEL.digest < 2**64


@pytest.mark.parametrize(
    "other",
    [
        changed(name="v"),
        changed(shape=(2, 3)),
        changed(dtype="float64"),
        changed(optimizer=1),
        changed(optimizer=None),
        ModelSpec((B, W), (SGD,), (ITEMS,)),
        ModelSpec((W, B), (ADAM,), (ITEMS,)),
        ModelSpec((W,), (SGD,), (ITEMS,)),
        ModelSpec((W, B), (SGD,)),
        with_table(num_rows=10),
        with_table(seed=4),
    ],
)
def test_another_model_has_another_digest(other):
    assert other.digest != MODEL.digest


def test_the_learning_rate_is_no_part_of_a_model():
    assert ModelSpec((W,), (GradientDescent(learning_rate=7.0).config(),)) == ModelSpec((W,), (SGD,))


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (changed(name="v"), "variable 'v' is new"),
        (changed(name="v"), "variable 'w' is missing"),
        (changed(shape=(2, 3)), "variable 'w' is float32[2, 3], expected float32[3, 2]"),
        (changed(dtype="float64"), "variable 'w' is float64[3, 2], expected float32[3, 2]"),
        (changed(optimizer=None), f"variable 'w' is trained by None, expected {SGD}"),
        (changed(optimizer=1), f"variable 'w' is trained by {ADAM}, expected {SGD}"),
        (with_table(name="users"), "table 'users' is new"),
        (with_table(name="users"), "table 'items' is missing"),
        (with_table(num_rows=10, dim=5), "table 'items' has num_rows 10, expected 9; dim 5, expected 4"),
        (
            with_table(initializer={"name": "zeros"}, admit_after=2, expire_after_steps=7),
            "table 'items' has initializer {'name': 'zeros'}, expected {'name': 'uniform', 'scale': 0.05}; "
            "admit_after 2, expected 1; expire_after_steps 7, expected None",
        ),
        (
            with_table(seed=4),
            "table 'items' has another seed, so its rows would start with other values; "
            "set tf_random_seed to its earlier value",
        ),
        (with_table(optimizer=1), f"table 'items' is trained by {ADAM}, expected {SGD}"),
    ],
)
def test_differences_are_told_one_by_one(other, line):
    assert line in MODEL.differences(other)


def test_the_same_variables_in_another_order_make_no_difference_to_a_checkpoint():
    tables = (dataclasses.replace(ITEMS, optimizer=1),)
    assert MODEL.differences(ModelSpec((B, dataclasses.replace(W, optimizer=1)), (ADAM, SGD), tables)) == []
