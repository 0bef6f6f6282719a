"""Duplicate ids are found, and what belongs to one id is added up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ps_runtime.tables.dedupe import sum_rows, unique_ids

some_ids = arrays(np.int64, st.integers(0, 60), elements=st.one_of(st.integers(0, 9), st.integers(0, 2**63 - 1)))


@given(some_ids)
def test_agrees_with_numpy(ids):
    unique, inverse = unique_ids(ids)
    expected, expected_inverse = np.unique(ids, return_inverse=True)
    assert unique.tolist() == expected.tolist()
    assert inverse.tolist() == expected_inverse.tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16])
def test_ids_may_have_any_shape_and_integer_type(dtype):
    unique, inverse = unique_ids(np.array([[9, 2], [2, 9]], dtype))
    assert (unique.dtype, inverse.dtype) == (np.int64, np.int64)
    assert (unique.tolist(), inverse.tolist()) == ([2, 9], [1, 0, 0, 1])


def test_does_not_change_the_ids():
    ids = np.array([5, 1, 5])
    unique_ids(ids)
    assert ids.tolist() == [5, 1, 5]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_added_in_their_order(dtype):
    rng = np.random.default_rng(2)
    ids, values = rng.integers(0, 40, 500), rng.normal(size=(500, 3)).astype(dtype)
    unique, inverse = unique_ids(ids)
    expected = np.zeros((len(unique), 3), dtype)
    for place, row in zip(inverse, values, strict=True):
        expected[place] += row
    summed = sum_rows(inverse, values, len(unique))
    assert summed.dtype == dtype
    assert summed.flags.c_contiguous
    np.testing.assert_array_equal(summed, expected)


def test_no_rows_have_no_sum():
    unique, inverse = unique_ids(np.empty((0, 3), np.int64))
    assert len(unique) == len(inverse) == 0
    assert sum_rows(inverse, np.empty((0, 4), np.float32), 0).shape == (0, 4)
