"""Features that are ids in canned models: as one-hot numbers would do, without the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.gradients import GradientFn
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.ps_runtime.model.canned.features import MAX_DENSE_IDS
from psflow.ps_runtime.model.canned.linear import linear_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.model.lookups import RowGradient
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.optimizers import GradientDescent
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema

RNG = np.random.default_rng(14)
SGD = GradientDescent(learning_rate=0.1)
NUMBERS = RNG.normal(size=(12, 2)).astype(np.float32)
WORDS = np.array([3, 0, 3, 1, 0, 3, 3, 1, 0, 0, 1, 3])  # 2 is in no example
LABELS = RNG.integers(0, 2, 12)
MANY = MAX_DENSE_IDS + 1

MODELS = {
    "linear classifier": (linear_model, {"head": ClassifierSpec(2), "optimizer": SGD, "sparse_combiner": "sum"}),
    "linear regressor": (linear_model, {"head": RegressionHead(1), "optimizer": SGD, "sparse_combiner": "sum"}),
    "dnn classifier": (
        dnn_model,
        {"hidden_units": [5], "activation_fn": "relu", "dropout": None, "head": ClassifierSpec(2), "optimizer": SGD},
    ),
    "dnn regressor": (
        dnn_model,
        {"hidden_units": [], "activation_fn": "relu", "dropout": None, "head": RegressionHead(1), "optimizer": SGD},
    ),
}
LINEAR_WORD = "linear/linear_model/word/weights"
EMBEDDED_WORD = "dnn/input_layer/word_embedding/embedding_weights"


def caller_of(model: str, num_ids: int, embedding: int = 0, dtype: str = "int64") -> ModelCaller:
    word = ArraySpec("word", dtype, (), num_ids, embedding)
    schema = InputSchema((ArraySpec("x", "float32", (2,)), word))
    return ModelCaller(*MODELS[model], None, schema)


def features(words: Any = WORDS) -> dict[str, Any]:
    return {"x": NUMBERS, "word": words}


class Rows:
    """Rows of a table, the only ones that are requested."""

    def __init__(self, ids: Any, values: Any) -> None:
        self.ids, self.values = ids, values

    def rows(self, spec: Any, ids: Any) -> Any:
        assert np.isin(ids, self.ids).all()
        return self.values[np.searchsorted(self.ids, ids)]


@pytest.mark.parametrize("model", MODELS)
def test_ids_are_as_good_as_one_hot_numbers(model: str) -> None:
    of_ids = caller_of(model, 4)
    columns = np.eye(4, dtype=np.float32)[WORDS]
    as_numbers = ModelCaller(
        *MODELS[model], None, InputSchema((ArraySpec("x", "float32", (2,)), ArraySpec("word", "float32", (4,))))
    )
    one = of_ids.build(features(), LABELS, ModeKeys.TRAIN, seed=1)
    other = as_numbers.build(features(columns), LABELS, ModeKeys.TRAIN, seed=1)
    assert one.model.variables == other.model.variables
    values = {v.name: RNG.normal(size=v.shape).astype(np.float32) for v in one.model.variables}
    for _ in range(3):
        step = GradientFn(of_ids, one)(features(), LABELS, values, 0)
        same = GradientFn(as_numbers, other)(features(columns), LABELS, values, 0)
        assert step.loss == pytest.approx(same.loss, rel=1e-6)
        for name, gradient in step.gradients.items():
            np.testing.assert_allclose(gradient, same.gradients[name], rtol=1e-5, atol=1e-6)
            values[name] = values[name] - np.float32(0.1) * gradient


@pytest.mark.parametrize(("model", "name"), [("linear classifier", LINEAR_WORD), ("dnn classifier", EMBEDDED_WORD)])
def test_the_gradient_of_a_variable_of_rows_agrees_with_central_differences(
    model: str, name: str, central_differences: Any
) -> None:
    caller = caller_of(model, 4, embedding=3)
    built = caller.build(features(), LABELS, ModeKeys.TRAIN, seed=1)
    values = {v.name: RNG.normal(size=v.shape) for v in built.model.variables}
    step = GradientFn(caller, built)
    gradients = step(features(), LABELS, values, 0).gradients
    assert gradients.keys() == values.keys()
    for changed in (name, next(other for other in values if other != name and values[other].ndim == 2)):
        slopes = central_differences(
            lambda x, changed=changed: step(features(), LABELS, {**values, changed: x}, 0).loss, values[changed]
        )
        np.testing.assert_allclose(gradients[changed], slopes, atol=1e-6)
        assert np.abs(slopes).max() > 1e-3, "a gradient that is zero shows nothing"
    assert not gradients[name][2].any()  # the id that no example has


@pytest.mark.parametrize(
    ("model", "name", "dim"), [("linear regressor", LINEAR_WORD, 1), ("dnn regressor", EMBEDDED_WORD, 3)]
)
def test_the_gradient_of_a_table_of_rows_agrees_with_central_differences(
    model: str, name: str, dim: int, central_differences: Any
) -> None:
    caller = caller_of(model, MANY, embedding=3)
    words = np.where(WORDS == 3, MANY - 1, WORDS)
    built = caller.build(features(words), LABELS, ModeKeys.TRAIN, seed=1)
    [table] = built.model.tables
    assert (table.name, table.num_rows, table.dim) == (name, MANY, dim)
    assert built.table_features == {name: (("word",),)}  # its rows can be asked for before the call
    ids = np.unique(words)
    values = {v.name: RNG.normal(size=v.shape) for v in built.model.variables}
    rows = RNG.normal(size=(len(ids), dim))
    step = GradientFn(caller, built)
    gradient = step(features(words), LABELS, values, 0, Rows(ids, rows)).gradients[name]
    assert isinstance(gradient, RowGradient)
    assert gradient.ids.tolist() == ids.tolist()
    slopes = central_differences(lambda x: step(features(words), LABELS, values, 0, Rows(ids, x)).loss, rows)
    np.testing.assert_allclose(gradient.values, slopes, atol=1e-6)
    assert np.abs(slopes).max() > 1e-3, "a gradient that is zero shows nothing"


@pytest.mark.parametrize("num_ids", [4, MANY])
def test_weights_of_ids_begin_at_zero_and_vectors_do_not(num_ids: int) -> None:
    linear = caller_of("linear classifier", num_ids).build(features(), LABELS, ModeKeys.TRAIN, seed=1)
    dnn = caller_of("dnn classifier", num_ids, embedding=16).build(features(), LABELS, ModeKeys.TRAIN, seed=1)
    if num_ids == MANY:
        assert [table.initializer for table in linear.model.tables] == [{"name": "zeros"}]
        assert [table.initializer for table in dnn.model.tables] == [{"name": "normal", "scale": 0.25}]
    else:
        assert not linear.initial_values[LINEAR_WORD].any()
        assert dnn.initial_values[EMBEDDED_WORD].std() == pytest.approx(0.25, rel=0.3)


def test_so_many_ids_are_a_variable_and_one_more_is_a_table() -> None:
    most = caller_of("linear classifier", MAX_DENSE_IDS).build(features(), LABELS, ModeKeys.TRAIN, seed=1)
    assert not most.model.tables
    assert most.declared[LINEAR_WORD].shape == (MAX_DENSE_IDS, 1)


def test_ids_of_a_narrow_dtype_do_not_overflow() -> None:
    words = np.array([255, 0] * 6, np.uint8)
    caller = caller_of("linear classifier", 256, dtype="uint8")
    built = caller.build(features(words), LABELS, ModeKeys.TRAIN, seed=1)
    gradient = GradientFn(caller, built)(features(words), LABELS, built.initial_values, 0).gradients[LINEAR_WORD]
    assert np.flatnonzero(gradient.any(axis=1)).tolist() == [0, 255]


def test_vectors_stand_beside_the_numbers_in_the_order_of_names() -> None:
    caller = caller_of("dnn regressor", 4, embedding=3)
    built = caller.build(features(), LABELS, ModeKeys.TRAIN, seed=1)
    values = {v.name: RNG.normal(size=v.shape).astype(np.float32) for v in built.model.variables}
    spec = caller.apply(features(), None, ModeKeys.PREDICT, ModelValues(values), 0)
    inputs = np.column_stack([values[EMBEDDED_WORD][WORDS], NUMBERS])
    expected = inputs @ values["dnn/logits/kernel"] + values["dnn/logits/bias"]
    np.testing.assert_allclose(spec.predictions["predictions"], expected, rtol=1e-5)


def test_a_deep_network_needs_an_embedding_of_many_ids() -> None:
    with pytest.raises(InputError, match=rf"feature 'word' has {MANY} ids: a deep network takes at most 1000 without"):
        caller_of("dnn classifier", MANY).build(features(), LABELS, ModeKeys.TRAIN, seed=1)


def test_without_a_declaration_integers_are_numbers() -> None:
    numbers = InputSchema((ArraySpec("x", "float32", (2,)), ArraySpec("word", "int64", ())))
    built = caller_of("linear regressor", 4).reading(numbers).build(features(), LABELS, ModeKeys.TRAIN, seed=1)
    assert built.declared[LINEAR_WORD].shape == (1, 1)
