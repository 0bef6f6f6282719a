"""Features of several ids in canned models: weighed, joined, learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.gradients import GradientFn
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.ps_runtime.model.canned.features import MAX_DENSE_IDS, Ids, joining_factors, one_hot, read_features
from psflow.ps_runtime.model.canned.linear import linear_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.optimizers import GradientDescent
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema

IDS = np.array([[0, 2, -1], [3, -1, -1], [-1, -1, -1], [2, 2, 0], [1, 0, 3]])
WEIGHTS = np.float32([[1, 2, 0], [0.5, 0, 0], [0, 0, 0], [1, 3, 2], [2, -1, 1]])
FEATURES = {"tags": IDS, "w": WEIGHTS, "x": np.float32([[1], [2], [3], [4], [5]])}
LABELS = np.float32([1, 2, 3, 4, 5])
COMMON = {"head": RegressionHead(1), "optimizer": GradientDescent(0.1)}


def schema(embedding: int = 0, combiner: str = "mean", num_ids: int = 4) -> InputSchema:
    tags = ArraySpec("tags", "int64", (3,), num_ids, embedding, combiner=combiner, weights="w")
    made = InputSchema((ArraySpec("x", "float32", (1,)), tags, ArraySpec("w", "float32", (3,))))
    assert InputSchema.from_facts(made.to_facts()) == made
    return made


EXPECTED = {
    "sum": [[1, 2, 0], [0.5, 0, 0], [0, 0, 0], [1, 3, 2], [2, -1, 1]],
    "mean": [[1 / 3, 2 / 3, 0], [1, 0, 0], [0, 0, 0], [1 / 6, 3 / 6, 2 / 6], [2 / 3, 0, 1 / 3]],
    "sqrtn": [
        [1 / 5**0.5, 2 / 5**0.5, 0],
        [1, 0, 0],
        [0, 0, 0],
        [1 / 14**0.5, 3 / 14**0.5, 2 / 14**0.5],
        [2 / 5**0.5, 0, 1 / 5**0.5],
    ],
}


@pytest.mark.parametrize("combiner", EXPECTED)
def test_vectors_are_joined_by_the_combiner_of_the_feature_and_weights_by_that_of_the_model(combiner: Any) -> None:
    for found in (
        read_features(FEATURES, schema(2, combiner))["tags"],
        read_features(FEATURES, schema(2, "sum"), combiner)["tags"],
        read_features(FEATURES, schema(0, "sum"), combiner)["tags"],
    ):
        assert isinstance(found, Ids)
        np.testing.assert_allclose(found.factors, EXPECTED[combiner], rtol=1e-6)
        assert found.values[4].tolist() == ([1, 0, 3] if combiner == "sum" else [1, -1, 3])


def test_ids_without_vectors_are_columns_with_the_sum_of_the_weights() -> None:
    read = read_features(FEATURES, schema(0, "mean"))
    assert list(read) == ["tags", "x"], "weights are no feature of their own"
    tags = read["tags"]
    assert isinstance(tags, Ids)
    assert one_hot(tags, "tags").tolist() == [[1, 0, 2, 0], [0, 0, 0, 0.5], [0] * 4, [2, 0, 4, 0], [-1, 2, 0, 1]]


def test_without_weights_each_id_weighs_1() -> None:
    ids, factors = joining_factors(IDS, None, "mean")
    assert ids.tolist() == IDS.tolist()
    assert factors[:3].tolist() == [[0.5, 0.5, 0], [1, 0, 0], [0, 0, 0]]


def test_ids_of_another_shape_are_refused() -> None:
    with pytest.raises(InputError, match=r"feature 'tags': expected ids of shape \(batch, 3\), got \(5, 2\)"):
        read_features({**FEATURES, "tags": IDS[:, :2]}, schema())


@pytest.mark.parametrize("embedding", [0, 2])
@pytest.mark.parametrize("model", [linear_model, dnn_model])
def test_gradients_agree_with_central_differences(model: Any, embedding: int, central_differences: Any) -> None:
    params = (
        {**COMMON, "sparse_combiner": "sqrtn"}
        if model is linear_model
        else {**COMMON, "hidden_units": [3], "activation_fn": "relu", "dropout": None}
    )
    caller = ModelCaller(model, params, None, schema(embedding, "sqrtn"))
    built = caller.build(FEATURES, LABELS, ModeKeys.TRAIN, seed=1)
    random = np.random.default_rng(3)
    values = {v.name: random.normal(size=v.shape) for v in built.model.variables}
    step = GradientFn(caller, built)
    gradients = step(FEATURES, LABELS, values, 0).gradients
    for name in values:
        slopes = central_differences(
            lambda x, name=name: step(FEATURES, LABELS, {**values, name: x}, 0).loss, values[name]
        )
        np.testing.assert_allclose(gradients[name], slopes, atol=1e-5)
        assert np.abs(slopes).max() > 1e-3, name


def test_many_ids_are_a_sparse_table() -> None:
    caller = ModelCaller(linear_model, {**COMMON, "sparse_combiner": "sum"}, None, schema(0, "mean", MAX_DENSE_IDS + 1))
    built = caller.build(FEATURES, LABELS, ModeKeys.TRAIN, seed=1)
    assert [table.name for table in built.model.tables] == ["linear/linear_model/tags/weights"]
