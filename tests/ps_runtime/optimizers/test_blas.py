from __future__ import annotations

import numpy as np
import pytest

from psflow.ps_runtime.optimizers.blas import add_scaled


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("float32", 1e-7), ("float64", 1e-15)])
def test_adds_in_place_what_the_formula_says(dtype: str, tolerance: float) -> None:
    rng = np.random.default_rng(0)
    before, values = rng.random((2, 1001)).astype(dtype)
    target = before.copy()
    add_scaled(target, -0.5, values.copy())
    np.testing.assert_allclose(target, before.astype(float) - 0.5 * values.astype(float), atol=tolerance)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_parts_are_the_whole_bit_for_bit(dtype: str) -> None:
    rng = np.random.default_rng(1)
    for size in (1, 7, 64, 300):
        before, values = rng.standard_normal((2, size)).astype(dtype)
        whole = before.copy()
        add_scaled(whole, -0.1, values.copy())
        for cut in range(size + 1):
            parts = before.copy()
            add_scaled(parts[:cut], -0.1, values[:cut].copy())
            add_scaled(parts[cut:], -0.1, values[cut:].copy())
            assert parts.tobytes() == whole.tobytes()
