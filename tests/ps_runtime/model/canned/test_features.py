import numpy as np
import pytest

from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column
from psflow.ps_runtime.data.arrays import array_specs
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.canned.features import MAX_DENSE_IDS, Ids, one_hot, read_features, read_weights
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema


def read(features):
    named = features if isinstance(features, dict) else {"": features}
    return read_features(features, InputSchema(array_specs({name: np.asarray(a) for name, a in named.items()})))


def test_a_float32_matrix_is_not_copied():
    matrix = np.ones((3, 2), np.float32)
    assert read(matrix)[""] is matrix


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8, bool])
def test_numbers_become_float32(dtype):
    matrix = read(np.ones((3, 2), dtype))[""]
    assert matrix.dtype == np.float32
    assert matrix.tolist() == [[1.0, 1.0]] * 3


def test_a_mapping_is_in_the_order_of_names_and_a_column_is_a_matrix():
    found = read({"z": [7, 8], "a": [[1, 2], [3, 4]], "B": np.array([5.0, 6.0])})
    assert list(found) == ["B", "a", "z"]
    assert [values.tolist() for values in found.values()] == [[[5.0], [6.0]], [[1.0, 2.0], [3.0, 4.0]], [[7.0], [8.0]]]


def test_ids_are_those_that_the_schema_declares_and_the_array_itself():
    schema = InputSchema((ArraySpec("n", "int64", ()), ArraySpec("word", "int64", (), 9, 4)))
    words = np.array([8, 0])
    found = read_features({"word": words, "n": np.array([8, 0])}, schema)
    assert found["n"].tolist() == [[8.0], [0.0]]
    assert found["word"].values is words  # so that a table may ask for its rows before the call
    assert found["word"][1:3] == (9, 4)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({}, "expected at least one feature, got an empty mapping"),
        ({"a": ["x", "y"]}, "feature 'a': expected numbers, got <U1; encode them as numbers"),
        (None, "features: expected numbers, got object"),
        (np.ones((2, 8, 8)), r"features: expected an array of shape \(batch, k\), got \(2, 8, 8\); flatten"),
        (3.0, r"features: expected an array of shape \(batch, k\), got \(\)"),
        ({"a": [1, 2], "b": [1]}, r"expected features of equal length, got \{'a': 2, 'b': 1\} rows"),
    ],
)
def test_what_is_no_matrix_is_refused(features, words):
    with pytest.raises(InputError, match=words):
        read(features)


@pytest.mark.parametrize("shape", [(2, 1), (2, 3), ()])
def test_an_example_has_one_id(shape):
    schema = InputSchema((ArraySpec("word", "int64", shape[1:], num_ids=3),))
    with pytest.raises(InputError, match=r"feature 'word': expected one id for each example, \(batch,\), got \("):
        read_features({"word": np.zeros(shape, np.int64)}, schema)


def test_so_many_ids_have_a_column_each_and_no_more():
    last = MAX_DENSE_IDS - 1
    columns = one_hot(Ids(np.array([last, 0], np.uint16), MAX_DENSE_IDS, 0), "word")
    assert np.argwhere(columns).tolist() == [[0, last], [1, 0]]
    words = r"feature 'word' has 1001 ids: .* at most 1000 without .* give it one, .* by Dataset\(\.\.\., embedding="
    with pytest.raises(InputError, match=words):
        one_hot(Ids(np.array([0]), MAX_DENSE_IDS + 1, 0), "word")


WEIGHED = InputSchema(
    (ArraySpec("w", "float32", ()), ArraySpec("x", "float32", ())),
    preprocessing=Preprocessing((), (), weight=Column(RawColumn("w", "float64"), "float64")),
)


def test_weights_are_no_features_and_a_prediction_needs_none():
    features = {"w": np.float32([1, 0]), "x": [3, 4]}
    assert list(read_features(features, WEIGHED)) == ["x"]
    assert read_weights(features, WEIGHED.weight).tolist() == [1, 0]
    assert list(read_features({"x": [3, 4]}, WEIGHED)) == ["x"]
    with pytest.raises(InputError, match="expected the weights of the records, 'w', as in training"):
        read_weights({"x": [3, 4]}, "w")


def test_without_weights_in_training_all_weigh_alike():
    assert read_weights({"w": [1.0]}, InputSchema((ArraySpec("w", "float32", ()),)).weight) is None


@pytest.mark.parametrize(
    ("weights", "fault"),
    [
        ([1.0, -2.0], "weights 'w': row 1 of the batch is -2.0, expected a finite number >= 0"),
        ([np.nan, 1.0], "row 0 of the batch is nan"),
        ([1.0, np.inf], "row 1 of the batch is inf"),
        (["1", "2"], r"weights 'w': expected one number for each example, got <U1\[2\]"),
        (np.ones((2, 2)), r"expected one number for each example, got float64\[2, 2\]"),
    ],
)
def test_what_is_no_weight_is_refused(weights, fault):
    with pytest.raises(InputError, match=fault):
        read_weights({"w": np.array(weights)}, "w")


@pytest.mark.parametrize("features", [np.ones((2, 3)), {"x": np.ones(2)}])
def test_weights_that_are_not_there_are_missed(features):
    with pytest.raises(InputError, match="expected the weights of the records, 'w', as in training"):
        read_weights(features, "w")


def test_weights_may_be_a_column():
    assert read_weights({"w": np.ones((2, 1), np.int64)}, "w").tolist() == [1.0, 1.0]
