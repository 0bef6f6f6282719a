"""Each optimizer against formulas in Python floats, written from the papers in conftest.py."""

import numpy as np
import pytest

NUM_UPDATES = 100
SIZE = 7


@pytest.fixture
def gradients():
    rng = np.random.default_rng(3)
    scales = 10.0 ** rng.integers(-3, 3, SIZE)
    return rng.normal(size=(NUM_UPDATES, SIZE)) * scales


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-5)])
def test_agrees_with_the_formula_over_100_updates(rule, reference, arena_of, gradients, dtype, tolerance):
    start = np.linspace(-2.0, 2.0, SIZE)
    arena = arena_of(rule, start.astype(dtype))
    formula = reference([float(x) for x in arena.parameters])
    next(formula)
    for step, gradient in enumerate(gradients.astype(dtype)):
        arena.update(gradient)
        expected = np.array(formula.send([float(g) for g in gradient]))
        scale = np.maximum(np.abs(expected), np.abs(start))
        error = np.max(np.abs(arena.parameters - expected) / np.maximum(scale, 1.0))
        assert error < tolerance, f"at update {step + 1}"
    assert np.max(np.abs(arena.parameters - start)) > 0.01


def test_adam_moves_by_the_learning_rate_at_first(arena_of):
    from psflow.ps_runtime.optimizers import Adam

    arena = arena_of(Adam(learning_rate=0.5), np.zeros(3))
    arena.update(np.array([1e-3, -7.0, 1e4]))
    np.testing.assert_allclose(arena.parameters, [-0.5, 0.5, -0.5], rtol=1e-3)
