"""Late and expiring rows of canned models: from the schema to the tables, and refused without a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from psflow.feature_column import categorical_column_with_identity, embedding_column
from psflow.ps_runtime.columns.row_lifetime import RowLifetime
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.ps_runtime.model.canned.dnn_linear_combined import dnn_linear_combined_model
from psflow.ps_runtime.model.canned.features import MAX_DENSE_IDS
from psflow.ps_runtime.model.canned.linear import baseline_model, linear_model
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.optimizers import GradientDescent
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema

SGD = GradientDescent(learning_rate=0.1)
LIVES = RowLifetime(admit_after=3, expire_after_steps=50)
MANY = MAX_DENSE_IDS + 1
HEAD: dict[str, Any] = {"head": RegressionHead(), "linear_sparse_combiner": "sum"}
COMBINED = {
    "dnn_hidden_units": [2],
    "dnn_activation_fn": "relu",
    "dnn_dropout": None,
    "linear_optimizer": SGD,
    "dnn_optimizer": SGD,
} | HEAD
ALL = {"linear_feature_columns": None, "dnn_feature_columns": None}

LINEAR = (linear_model, {"optimizer": SGD, "sparse_combiner": "sum"} | HEAD)
DNN = (dnn_model, {"hidden_units": [2], "activation_fn": "relu", "dropout": None, "optimizer": SGD} | HEAD)
WIDE_AND_DEEP = (dnn_linear_combined_model, COMBINED | ALL)
DEEP_ON_NUMBERS = (
    dnn_linear_combined_model,
    COMBINED | {"linear_feature_columns": ["word"], "dnn_feature_columns": ["x"]},
)
NOT_READ = (dnn_linear_combined_model, COMBINED | {"linear_feature_columns": ["x"], "dnn_feature_columns": ["x"]})
BASELINE = (baseline_model, {"optimizer": SGD} | HEAD)


def tables_of(model: Any, num_ids: int, embedding: int, lifetime: RowLifetime = LIVES) -> dict[str, RowLifetime]:
    word = ArraySpec("word", "int64", (), num_ids, embedding, lifetime)
    caller = ModelCaller(*model, None, InputSchema((ArraySpec("x", "float32", (1,)), word)))
    features = {"x": np.ones((2, 1), np.float32), "word": np.array([1, 0])}
    built = caller.build(features, np.float32([0, 1]), ModeKeys.TRAIN, seed=1).model
    return {table.name: RowLifetime(table.admit_after, table.expire_after_steps) for table in built.tables}


WEIGHTS, VECTORS = "linear/linear_model/word/weights", "dnn/input_layer/word_embedding/embedding_weights"


@pytest.mark.parametrize(
    ("model", "embedding", "tables"),
    [
        (LINEAR, 0, {WEIGHTS}),
        (LINEAR, 4, {WEIGHTS}),
        (DNN, 4, {VECTORS}),
        (WIDE_AND_DEEP, 4, {WEIGHTS, VECTORS}),
        (DEEP_ON_NUMBERS, 0, {WEIGHTS}),
    ],
)
def test_each_table_of_a_feature_has_its_lifetime(model: Any, embedding: int, tables: set[str]) -> None:
    assert tables_of(model, MANY, embedding) == dict.fromkeys(tables, LIVES)
    assert tables_of(model, MANY, embedding, RowLifetime()) == dict.fromkeys(tables, RowLifetime())


@pytest.mark.parametrize(
    ("model", "num_ids", "embedding"),
    [
        (LINEAR, MAX_DENSE_IDS, 0),
        (DNN, MAX_DENSE_IDS, 0),
        (DNN, MAX_DENSE_IDS, 4),
        (WIDE_AND_DEEP, MAX_DENSE_IDS, 4),
        (NOT_READ, MANY, 4),
        (BASELINE, MANY, 4),
    ],
    ids=["linear", "one-hot", "vectors", "wide and deep", "not read", "baseline"],
)
@pytest.mark.parametrize("lifetime", [RowLifetime(admit_after=2), RowLifetime(expire_after_steps=9)], ids=str)
def test_it_is_refused_where_there_is_no_table(model: Any, num_ids: int, embedding: int, lifetime: RowLifetime) -> None:
    expected = f"feature 'word' has {lifetime}, but no sparse table in this model: it has {num_ids} ids"
    with pytest.raises(InputError, match=expected):
        tables_of(model, num_ids, embedding, lifetime)
    assert tables_of(model, num_ids, embedding, RowLifetime()) == {}


COLUMN = categorical_column_with_identity("word", MANY)
VECTORS_OF_IT = embedding_column(COLUMN, 2)


@pytest.mark.parametrize(
    "model",
    [
        (linear_model, LINEAR[1] | {"feature_columns": [COLUMN]}),
        (dnn_model, DNN[1] | {"feature_columns": [VECTORS_OF_IT]}),
        (
            dnn_linear_combined_model,
            COMBINED | {"linear_feature_columns": [COLUMN], "dnn_feature_columns": [VECTORS_OF_IT]},
        ),
    ],
    ids=["linear", "deep", "wide and deep"],
)
def test_it_is_refused_beside_feature_columns_which_have_none(model: Any) -> None:
    with pytest.raises(InputError, match=r"feature 'word' has admit_after 3.*but feature columns have no lifetimes"):
        tables_of(model, MANY, 0)
    assert set(tables_of(model, MANY, 0, RowLifetime()).values()) == {RowLifetime()}
