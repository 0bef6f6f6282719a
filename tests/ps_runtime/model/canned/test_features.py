import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.canned.features import feature_matrix


def test_a_float32_matrix_is_not_copied():
    matrix = np.ones((3, 2), np.float32)
    assert feature_matrix(matrix) is matrix


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8, bool])
def test_numbers_become_float32(dtype):
    matrix = feature_matrix(np.ones((3, 2), dtype))
    assert matrix.dtype == np.float32
    assert matrix.tolist() == [[1.0, 1.0]] * 3


def test_a_mapping_is_put_side_by_side_in_the_order_of_names():
    features = {"z": [7, 8], "a": [[1, 2], [3, 4]], "B": np.array([5.0, 6.0])}
    assert feature_matrix(features).tolist() == [[5.0, 1.0, 2.0, 7.0], [6.0, 3.0, 4.0, 8.0]]


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({}, "expected at least one feature, got an empty mapping"),
        ({"a": ["x", "y"]}, "feature 'a': expected numbers, got <U1; encode them as numbers"),
        (None, "features: expected numbers, got object"),
        (np.ones((2, 8, 8)), r"features: expected an array of shape \(batch, k\), got \(2, 8, 8\); flatten"),
        (3.0, r"features: expected an array of shape \(batch, k\), got \(\)"),
        ({"a": [1, 2], "b": [1]}, r"expected features of one length, got \{'a': 2, 'b': 1\} rows"),
    ],
)
def test_what_is_no_matrix_is_refused(features, words):
    with pytest.raises(InputError, match=words):
        feature_matrix(features)
