"""What is not a number is found wherever it stands; numbers whose squares overflow are numbers still."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.numeric import first_non_finite


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("shape", "place", "row"), [((), (), 0), ((9,), (4,), 4), ((5, 3), (2, 1), 2), ((1, 70), (0, 69), 0)]
)
def test_one_value_is_found_with_its_row(dtype, bad, shape, place, row):
    values = np.full(shape, np.finfo(dtype).max, dtype)
    assert first_non_finite(values) is None
    values[place] = bad
    found = first_non_finite(values)
    assert found is not None
    assert found[0] == row
    np.testing.assert_equal(found[1], bad)


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0)])
def test_nothing_is_finite(shape):
    assert first_non_finite(np.empty(shape, np.float32)) is None


@settings(max_examples=60)
@given(st.lists(st.floats(width=32), min_size=1, max_size=40))
def test_it_says_what_isfinite_says(numbers):
    values = np.array(numbers, np.float32)
    bad = np.flatnonzero(~np.isfinite(values))
    found = first_non_finite(values)
    assert (None if found is None else found[0]) == (int(bad[0]) if bad.size else None)
