"""Central differences, for whoever claims a gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

Function = Callable[[NDArray[np.float64]], float]


def differences(function: Function, at: NDArray[np.float64], step: float = 1e-5) -> NDArray[np.float64]:
    """Return ``(f(x + h e_i) - f(x - h e_i)) / 2h`` for each element of `at`, in its shape."""
    slopes = np.empty_like(at)
    for index in np.ndindex(at.shape):
        nudge = np.zeros_like(at)
        nudge[index] = step
        slopes[index] = (function(at + nudge) - function(at - nudge)) / (2 * step)
    return slopes


@pytest.fixture
def central_differences() -> Callable[[Function, Any], NDArray[np.float64]]:
    return differences
