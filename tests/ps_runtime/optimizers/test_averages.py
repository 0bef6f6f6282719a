"""Moving averages and counters: what a push carries is no gradient."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.optimizers import Counter, MovingAverage, Optimizer, UpdateOperands


def updated(rule: Optimizer, value: float, pushes: list[float], rate: float) -> float:
    parameters = np.array([value])
    for index, push in enumerate(pushes):
        rule.update(UpdateOperands(parameters, np.array([push]), {}, np.empty(1), rate, index + 1))
    return float(parameters[0])


def test_an_average_moves_by_its_weight_towards_each_batch() -> None:
    assert updated(MovingAverage(0.1), 1.0, [11.0, 2.0], 0.1) == pytest.approx((1.0 * 0.9 + 1.1) * 0.9 + 0.2)
    assert updated(MovingAverage(1.0), 1.0, [11.0, 2.0], 1.0) == 2.0


@example(first=2.0**53 + 4, pushes=[1.0], rate=1.0)  # as a step towards the push, it would be 0
@given(
    first=st.floats(1e-30, 1e30),
    pushes=st.lists(st.floats(1e-30, 1e30), min_size=1, max_size=20),
    rate=st.floats(0, 1),
)
def test_a_variance_stays_positive(first: float, pushes: list[float], rate: float) -> None:
    found = updated(MovingAverage(rate), first, pushes, rate)
    assert 0 < found <= max(first, *pushes) * (1 + 1e-12)


def test_a_counter_adds() -> None:
    assert updated(Counter(), 2.0**40, [1.0] * 3, 1.0) == 2.0**40 + 3


@pytest.mark.parametrize("rate", [1.5, -0.1, float("inf")])
def test_a_weight_beyond_one_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match=r"MovingAverage: learning_rate is .*, expected"):
        MovingAverage(rate)
