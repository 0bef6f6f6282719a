"""Activation functions against TensorFlow 2.15.1: their values and slopes."""

import json

import numpy as np
import pytest

from psflow.ps_runtime.layers import activated
from tests.parity.activations import NAMES, NUMBERS_FILE, POINTS

TENSORFLOW = json.loads(NUMBERS_FILE.read_text())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("error")
def test_values_and_slopes_are_those_of_tensorflow(name):
    values, backward = activated(name, POINTS[np.newaxis].copy())
    slopes = backward(np.ones_like(values))
    assert values.dtype == slopes.dtype == np.float32
    np.testing.assert_allclose(values[0], TENSORFLOW[name]["values"], rtol=2e-6, atol=1e-30)
    np.testing.assert_allclose(slopes[0], TENSORFLOW[name]["slopes"], rtol=2e-5, atol=2e-7)
