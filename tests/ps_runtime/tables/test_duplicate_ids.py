"""Duplicate ids are found, and the values of each id are summed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from psflow.ps_runtime.tables.duplicate_ids import find_occurrences

some_ids = arrays(np.int64, st.integers(0, 60), elements=st.one_of(st.integers(0, 9), st.integers(0, 2**63 - 1)))
RNG = np.random.default_rng(2)


@given(some_ids)
def test_agrees_with_numpy(ids):
    found = find_occurrences(ids)
    expected, inverse = np.unique(ids, return_inverse=True)
    assert found.unique.tolist() == expected.tolist()
    assert found.inverse().tolist() == inverse.tolist()
    assert found.order.tolist() == np.argsort(ids, kind="stable").tolist()
    assert np.diff(found.starts).tolist() == np.bincount(inverse).tolist()


def test_does_not_change_the_ids():
    ids = np.array([5, 1, 5])
    find_occurrences(ids)
    assert ids.tolist() == [5, 1, 5]


def test_ids_may_be_left_out():
    ids = np.array([5, -1, 9, 5, -7])
    found = find_occurrences(ids, ids >= 0)
    assert (found.unique.tolist(), found.inverse().tolist(), found.size) == ([5, 9], [0, 0, 1, 0, 0], 5)
    assert found.sum(np.arange(5.0)[:, np.newaxis]).tolist() == [[3], [2]]


def case(num_sums, size=480, num_left_out=0):
    """Return occurrences, the row of each id, which sum each position is in, and weights."""
    ids = RNG.integers(0, 40, size)
    is_present = np.ones(size, bool)
    is_present[RNG.permutation(size)[:num_left_out]] = False
    found = find_occurrences(ids, is_present)
    rows = np.searchsorted(found.unique, ids)
    return found, rows, np.arange(size) // (size // num_sums), RNG.normal(size=size) * is_present


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_added_in_the_order_of_their_occurrences(dtype):
    found, rows, _, _ = case(480)
    values = RNG.normal(size=(480, 3)).astype(dtype)
    expected = np.zeros((len(found.unique), 3), dtype)
    for row, value in zip(rows, values, strict=True):
        expected[row] += value
    summed = found.sum(values)
    assert summed.dtype == dtype
    assert summed.flags.c_contiguous
    np.testing.assert_array_equal(summed, expected)


def test_a_value_may_be_that_of_several_neighbours():
    found, _, sums, _ = case(60)
    values = RNG.normal(size=(60, 3)).astype(np.float32)
    np.testing.assert_array_equal(found.sum(values), found.sum(values[sums]))


@pytest.mark.parametrize(("num_sums", "num_left_out"), [(480, 0), (60, 0), (60, 200), (1, 0)])
def test_sums_are_products_with_one_matrix_and_its_transpose(num_sums, num_left_out):
    found, rows, sums, weights = case(num_sums, num_left_out=num_left_out)
    matrix = np.zeros((num_sums, len(found.unique)))
    present = np.flatnonzero(weights)
    np.add.at(matrix, (sums[present], rows[present]), weights[present])
    of_rows, of_sums = RNG.normal(size=(len(found.unique), 4)), RNG.normal(size=(num_sums, 4))
    np.testing.assert_allclose(found.pool(of_rows, num_sums, weights), matrix @ of_rows, atol=1e-12)
    np.testing.assert_allclose(found.sum(of_sums, weights), matrix.T @ of_sums, atol=1e-12)
    ones = (weights != 0).astype(float)
    np.testing.assert_allclose(found.pool(of_rows, num_sums), found.pool(of_rows, num_sums, ones), atol=1e-12)


@pytest.mark.parametrize("ids", [[], [-1, -1, -1, -1]])
def test_where_no_id_is_there_is_nothing_to_sum(ids):
    found = find_occurrences(np.array(ids, np.int64), np.zeros(len(ids), bool))
    assert (len(found.unique), found.inverse().tolist()) == (0, [0] * len(ids))
    assert found.sum(np.empty((len(ids), 4), np.float32)).shape == (0, 4)
    assert found.pool(np.empty((0, 4), np.float32), 2).tolist() == [[0] * 4] * 2
